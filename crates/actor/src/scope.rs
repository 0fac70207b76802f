//! The current turn of a thread: entered around every poll of a turn, so that calls know their caller.
//!
//! Scopes nest: an inline call runs inside its caller's poll, with the caller's scope in `outer`. The stack of scopes
//! on a thread is therefore the chain of inline calls, which is how a cycle among them is detected.

mod measuring;
mod stack;

use std::sync::Arc;

use elastin_types::{ActorId, Caller, ChainId, Method, Time};

use crate::Actor;
use crate::call_context::{AddedValues, CallContext, HERE, MessageContext, NEVER, Origin};
use crate::host::{CellHandle, Host};
use crate::instance::Instance;
use crate::measure::Measure;
use crate::shared_instance::SharedInstance;
pub(crate) use measuring::without_timing;
use stack::CurrentScope;
pub(crate) use stack::{Inside, count_awaited_call, count_inline_call, depth, inside, should_yield, with_current};

/// The context of a turn: its cell, its call context and its measurements.
pub struct Scope {
    /// `None` only in the pool.
    cell: Option<Arc<dyn CellHandle>>,
    pub(crate) call_context: CallContext,
    /// Whether other turns may share the actor.
    shared: bool,
    /// The caller. `None` for an inline call: its caller is the outer scope, or a client in this process.
    origin: Option<Origin>,
    /// Boxed, because most turns are not measured.
    measure: Option<Box<Measure>>,
    outer: Option<Box<Scope>>,
}

/// The actor of a turn that begins, and the turn's sampling weight.
pub struct TurnOwner {
    cell: Arc<dyn CellHandle>,
    measured: Option<u32>,
    shared: bool,
}

impl TurnOwner {
    /// For an exclusive turn.
    #[inline]
    pub fn exclusive<A>(instance: &mut Instance<A>) -> Self {
        Self {
            measured: instance.measure_next(),
            cell: instance.take_cell(),
            shared: false,
        }
    }

    /// For a turn that shares its actor.
    pub fn shared<A: Actor>(shared: &SharedInstance) -> Self {
        Self {
            measured: shared.measure_next(),
            cell: shared.instance::<A>().cell().clone(),
            shared: true,
        }
    }
}

/// The message context of a call or tell made by the current turn or outside any. `size` computes the size of the
/// arguments if the call is recorded.
#[inline]
pub(crate) fn message_context(
    host: &dyn Host,
    callee: (&ActorId, Method),
    deadline: Time,
    added: AddedValues,
    one_way: bool,
    size: impl FnOnce() -> u64,
) -> MessageContext {
    let mut current = CurrentScope::take();
    let (caller, mut call_context) = match current.scope() {
        Some(scope) => {
            if scope.call_is_due() {
                scope.record_call(callee, size);
            }
            let call_context = if one_way {
                scope.call_context.detached()
            } else {
                scope.ensure_chain(host);
                scope.call_context.clone()
            };
            (Caller::Actor(scope.cell().id()), call_context)
        }
        None => (Caller::Client(host.node()), CallContext::new(host.tenant())),
    };
    drop(current);
    call_context.deadline = call_context.deadline.min(deadline);
    call_context.add(added);
    MessageContext::here(caller, call_context, one_way)
}

impl Scope {
    /// Enters an inline turn. `size` computes the size of the arguments if the turn is measured.
    #[inline]
    pub(crate) fn enter_inline<'h>(
        owner: TurnOwner,
        host: impl FnOnce() -> &'h Arc<dyn Host>,
        method: Method,
        deadline: Time,
        added: AddedValues,
        one_way: bool,
        size: impl FnOnce() -> u64,
    ) {
        let TurnOwner { cell, measured, shared } = owner;
        let mut scope = Self::fresh();
        let mut current = CurrentScope::take();
        let mut is_due = false;
        match current.scope() {
            Some(caller) => {
                scope.call_context = match one_way {
                    true => caller.call_context.detached(),
                    false => caller.call_context.clone(),
                };
                is_due = caller.call_is_due();
            }
            None => scope.call_context = CallContext::new(host().tenant()),
        }
        scope.cell = Some(cell);
        scope.shared = shared;
        if deadline != NEVER {
            scope.call_context.deadline = scope.call_context.deadline.min(deadline);
        }
        scope.call_context.add(added);
        if is_due || measured.is_some() {
            scope.measure_inline(method, measured, current.scope().filter(|_| is_due), size);
        }
        drop(current);
        if scope.call_context.trace().is_some() {
            scope.begin_span();
        }
        stack::enter(scope);
    }

    /// Enters a turn from the mailbox. `size` computes the size of the arguments if the turn is measured.
    #[inline]
    pub fn enter_message(owner: TurnOwner, message_context: MessageContext, size: impl FnOnce() -> u64) {
        let TurnOwner { cell, measured, shared } = owner;
        let mut scope = Self::fresh();
        scope.cell = Some(cell);
        scope.shared = shared;
        let (call_context, origin) = message_context.into_call_context();
        scope.call_context = call_context;
        scope.origin = Some(origin);
        if let Some(weight) = measured {
            scope.measure_message(weight, size);
        }
        if scope.call_context.trace().is_some() {
            scope.begin_span();
        }
        stack::enter(scope);
    }

    /// Re-enters a suspended turn.
    #[inline]
    pub fn resume(mut self: Box<Self>) {
        if self.measure.as_deref_mut().is_some_and(Measure::poll_is_due) {
            self.start_clock();
        }
        stack::enter(self);
    }

    /// Leaves this thread's current turn after a poll.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn leave() -> Box<Self> {
        let mut scope = stack::leave();
        if scope.measure.as_deref().is_some_and(Measure::is_timed) {
            scope.stop_clock();
        }
        scope
    }

    /// Ends this thread's current turn: reports its measurements and restores the instance's cell. Returns the
    /// deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn end<A>(instance: &mut Instance<A>, method: impl FnOnce() -> Method) -> Time {
        let mut scope = Self::leave_ended(method, |stride| instance.sampling.set_stride(stride));
        instance.restore_cell(scope.cell.take().expect("a turn has its cell"));
        scope.recycle()
    }

    /// Ends this thread's current turn, which shares its actor. Returns the deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    pub fn end_shared(shared: &SharedInstance, method: impl FnOnce() -> Method) -> Time {
        let mut scope = Self::leave_ended(method, |stride| shared.set_stride(stride));
        scope.cell = None;
        scope.recycle()
    }

    /// Leaves a turn that has ended, and reports its measurements.
    #[inline]
    fn leave_ended(method: impl FnOnce() -> Method, set_stride: impl FnOnce(u16)) -> Box<Self> {
        let mut scope = stack::leave();
        if scope.measure.is_some() {
            scope.stop_clock();
            if let Some(stride) = scope.report(method()) {
                set_stride(stride);
            }
        }
        scope
    }

    /// Copies the caller's data into the scope: a suspended inline turn outlives its caller's poll.
    pub(crate) fn detach_from_caller(&mut self) {
        with_current(|caller| {
            self.record_caller(caller.as_deref());
            let Some(caller) = caller else { return };
            // The stacks part here, so a cycle can only be detected by the chain's id.
            if self.call_context.chain().is_none() {
                caller.ensure_chain(&*self.cell().host());
                self.call_context
                    .set_chain(caller.call_context.chain().expect("the chain was just given an id"));
            }
        });
        // Time spent from here on is not part of the caller's poll.
        if let Some(measure) = &mut self.measure {
            measure.call_weight = 0;
        }
    }

    /// Ensures that the chain has an id, in this scope and in the outer scopes of the chain.
    #[inline]
    fn ensure_chain(&mut self, host: &dyn Host) {
        if self.call_context.chain().is_none() {
            self.begin_chain(ChainId(host.next_call()));
        }
    }

    #[cold]
    fn begin_chain(&mut self, chain: ChainId) {
        self.call_context.set_chain(chain);
        let mut outer = self.outer.as_deref_mut();
        while let Some(scope) = outer.take_if(|scope| scope.call_context.chain().is_none()) {
            scope.call_context.set_chain(chain);
            outer = scope.outer.as_deref_mut();
        }
    }

    /// Records the caller unless it is known: the turn that made the inline call, or a client in this process.
    fn record_caller(&mut self, caller: Option<&Scope>) {
        if self.origin.is_none() {
            let caller = self.local_caller(caller);
            self.origin = Some(Origin { caller, from: HERE });
        }
    }

    /// The caller within this process.
    fn local_caller(&self, caller: Option<&Scope>) -> Caller {
        match caller {
            Some(caller) => Caller::Actor(caller.cell().id()),
            None => Caller::Client(self.cell().node()),
        }
    }

    /// The call chain's id; `None` while no other turn can belong to the chain.
    pub fn chain(&self) -> Option<ChainId> {
        self.call_context.chain()
    }

    /// The caller.
    pub(crate) fn caller(&self) -> Caller {
        match &self.origin {
            Some(origin) => origin.caller.clone(),
            None => self.local_caller(self.outer.as_deref()),
        }
    }

    /// The actor's cell.
    #[inline]
    pub(crate) fn cell(&self) -> &Arc<dyn CellHandle> {
        self.cell.as_ref().expect("a turn has its cell")
    }
}

//! The turn that this thread is in: set around every poll of a turn, so that calls know who makes them.
//!
//! Scopes nest: an inline call runs inside its caller's poll, and the caller's scope waits in `outer` meanwhile. The chain of
//! scopes on a thread is therefore the chain of inline calls, which is how a cycle among them is found.

mod measuring;
mod stack;

use std::sync::Arc;

use elastin_types::{ActorId, Caller, ChainId, Method, RequestContext, TenantId, Time, TraceContext};

use crate::Actor;
use crate::call_context::{AddedValues, CallContext, HERE, MessageContext, NEVER, Origin};
use crate::host::{CellHandle, Host};
use crate::instance::Instance;
use crate::measure::Measure;
use crate::shared_instance::SharedInstance;
pub(crate) use measuring::aside;
use stack::Innermost;
pub(crate) use stack::{
    Inside, count_awaited_call, count_inline_call, current_actor, depth, inside, wants_pause, with_current,
};

/// A turn as long as it lasts: who runs, on whose behalf, and what is measured.
pub struct Scope {
    /// Always there, but in the pool.
    cell: Option<Arc<dyn CellHandle>>,
    call_context: CallContext,
    /// The actor, if other turns may share it with this one.
    shared: Option<SharedInstance>,
    /// Who called. `None` for an inline call, whose caller is the outer scope, or without one a client in this process.
    origin: Option<Origin>,
    /// Boxed, because most turns are not measured.
    measure: Option<Box<Measure>>,
    /// The turn was woken within the present poll, by its own thread.
    woken: bool,
    outer: Option<Box<Scope>>,
}

/// The actor whose turn begins, and whether the turn is measured.
pub(crate) struct Whose {
    cell: Arc<dyn CellHandle>,
    measured: Option<u32>,
    shared: Option<SharedInstance>,
}

impl Whose {
    /// The turn has its actor for itself.
    #[inline]
    pub(crate) fn alone<A>(instance: &mut Instance<A>) -> Self {
        Self {
            measured: instance.measure_next(),
            cell: instance.take_cell(),
            shared: None,
        }
    }

    /// The turn shares its actor with others.
    pub(crate) fn sharing<A: Actor>(shared: &SharedInstance) -> Self {
        Self {
            measured: shared.measure_next(),
            cell: shared.instance::<A>().cell().clone(),
            shared: Some(shared.clone()),
        }
    }
}

/// A call or tell whose turn begins on the caller's thread.
pub(crate) struct Inline {
    pub(crate) method: Method,
    pub(crate) deadline: Time,
    pub(crate) added: AddedValues,
    pub(crate) one_way: bool,
}

/// What a call or tell carries that is made now, within the current turn or outside any. `size` is asked for the size of the
/// arguments if the call is measured.
#[inline]
pub(crate) fn message_context(
    host: &dyn Host,
    callee: (&ActorId, Method),
    deadline: Time,
    added: AddedValues,
    one_way: bool,
    size: impl FnOnce() -> u64,
) -> MessageContext {
    let mut innermost = Innermost::take();
    let (caller, mut call_context) = match innermost.scope() {
        Some(scope) => {
            if scope.call_is_due() {
                scope.record_call(callee, size);
            }
            let call_context = if one_way {
                scope.call_context.apart()
            } else {
                scope.ensure_chain(host);
                scope.call_context.clone()
            };
            (Caller::Actor(scope.cell().id()), call_context)
        }
        None => (Caller::Client(host.node()), CallContext::new(host.tenant())),
    };
    drop(innermost);
    call_context.deadline = call_context.deadline.min(deadline);
    call_context.add(added);
    MessageContext::here(caller, call_context, one_way)
}

impl Scope {
    /// Enters the turn of a call or tell on the caller's thread. `size` is asked for the size of the arguments if the turn is
    /// measured.
    #[inline]
    pub(crate) fn enter_inline<'h>(
        whose: Whose,
        host: impl FnOnce() -> &'h Arc<dyn Host>,
        call: Inline,
        size: impl FnOnce() -> u64,
    ) {
        let Whose { cell, measured, shared } = whose;
        let Inline {
            method,
            deadline,
            added,
            one_way,
        } = call;
        let mut scope = Self::fresh();
        let mut innermost = Innermost::take();
        let mut is_due = false;
        match innermost.scope() {
            Some(caller) => {
                scope.call_context = match one_way {
                    true => caller.call_context.apart(),
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
            scope.measure_inline(method, measured, innermost.scope().filter(|_| is_due), size);
        }
        drop(innermost);
        if scope.call_context.trace().is_some() {
            scope.begin_span();
        }
        stack::enter(scope);
    }

    /// Enters a turn out of the mailbox that has its actor for itself. `size` is asked for the size of the arguments if the
    /// turn is measured.
    #[inline]
    pub fn enter_message<A>(instance: &mut Instance<A>, message_context: MessageContext, size: impl FnOnce() -> u64) {
        Self::enter_from_mailbox(Whose::alone(instance), message_context, size);
    }

    /// Enters a turn out of the mailbox that shares its actor with others.
    pub fn enter_shared_message<A: Actor>(
        shared: &SharedInstance,
        message_context: MessageContext,
        size: impl FnOnce() -> u64,
    ) {
        Self::enter_from_mailbox(Whose::sharing::<A>(shared), message_context, size);
    }

    #[inline]
    fn enter_from_mailbox(whose: Whose, message_context: MessageContext, size: impl FnOnce() -> u64) {
        let Whose { cell, measured, shared } = whose;
        let mut scope = Self::fresh();
        let (call_context, origin) = message_context.into_call_context();
        scope.call_context = call_context;
        scope.origin = Some(origin);
        scope.cell = Some(cell);
        scope.shared = shared;
        if let Some(weight) = measured {
            scope.measure_message(weight, size);
        }
        if scope.call_context.trace().is_some() {
            scope.begin_span();
        }
        stack::enter(scope);
    }

    /// Enters a worker's visit to an actor, in which turns that never wait come and go.
    pub fn enter_batch<A>(instance: &mut Instance<A>) {
        let mut scope = Self::fresh();
        scope.cell = Some(instance.take_cell());
        stack::enter(scope);
    }

    /// Leaves the visit, and gives back what was shared.
    ///
    /// # Panics
    /// If this thread is in no visit.
    pub fn leave_batch<A>(instance: &mut Instance<A>) {
        let mut scope = stack::leave();
        instance.restore_cell(scope.cell.take().expect("a visit has its cell"));
        scope.recycle();
    }

    /// Begins a turn of the visit that this thread is in. `size` is asked for the size of the arguments if the turn is
    /// measured.
    #[inline]
    pub(crate) fn begin_in_batch<A>(
        instance: &mut Instance<A>,
        message_context: MessageContext,
        size: impl FnOnce() -> u64,
    ) {
        let measured = instance.measure_next();
        let mut innermost = Innermost::take();
        let scope = innermost.scope().expect("a visit has been entered");
        let (call_context, origin) = message_context.into_call_context();
        scope.call_context = call_context;
        scope.origin = Some(origin);
        if let Some(weight) = measured {
            scope.measure_message(weight, size);
        }
        if scope.call_context.trace().is_some() {
            scope.begin_span();
        }
    }

    /// Ends the turn of the visit that this thread is in: hands in what was measured.
    #[inline]
    pub fn end_in_batch<A>(instance: &mut Instance<A>, method: impl FnOnce() -> Method) {
        let is_measured = with_current(|scope| scope.is_some_and(|scope| scope.measure.is_some()));
        if is_measured {
            Self::end_measured_in_batch(instance, method());
        }
    }

    #[cold]
    fn end_measured_in_batch<A>(instance: &mut Instance<A>, method: Method) {
        let mut scope = stack::leave();
        scope.stop_clock();
        if let Some(stride) = scope.hand_in(method) {
            instance.sampling.set_stride(stride);
        }
        stack::enter(scope);
    }

    /// The time.
    ///
    /// # Panics
    /// If this thread is in no turn.
    pub(crate) fn now() -> Time {
        with_current(|scope| scope.expect("this thread is in a turn").cell().now())
    }

    /// Enters a turn that was left before it was over.
    #[inline]
    pub fn resume(mut self: Box<Self>) {
        self.woken = false;
        if self.measure.as_deref_mut().is_some_and(Measure::poll_is_due) {
            self.start_clock();
        }
        stack::enter(self);
    }

    /// An actor is woken. If this thread is polling its turn, which has the actor for itself, that is [noted](Scope::is_woken) in
    /// the turn, and nobody else needs to know. Says whether it is so.
    #[inline]
    pub fn note_wake<S>(cell: &Arc<S>) -> bool {
        with_current(|scope| {
            let own = scope.filter(|scope| std::ptr::addr_eq(Arc::as_ptr(scope.cell()), Arc::as_ptr(cell)));
            let Some(scope) = own.filter(|scope| scope.shared.is_none()) else {
                return false;
            };
            scope.woken = true;
            true
        })
    }

    /// Whether the turn was woken during its last poll, by the thread that polled it.
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.woken
    }

    /// Leaves the innermost turn of this thread after a poll.
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

    /// Leaves the innermost turn of this thread, which is over: hands in what was measured and gives back the cell. Gives the
    /// deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn end<A>(instance: &mut Instance<A>, method: impl FnOnce() -> Method) -> Time {
        let mut scope = stack::leave();
        if scope.measure.is_some() {
            scope.stop_clock();
            if let Some(stride) = scope.hand_in(method()) {
                instance.sampling.set_stride(stride);
            }
        }
        instance.restore_cell(scope.cell.take().expect("a turn has its cell"));
        let deadline = scope.call_context.deadline;
        scope.recycle();
        deadline
    }

    /// Leaves the innermost turn of this thread, which is over and shares its actor with others. Gives the deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    pub fn end_shared(shared: &SharedInstance, method: impl FnOnce() -> Method) -> Time {
        let mut scope = stack::leave();
        if scope.measure.is_some() {
            scope.stop_clock();
            if let Some(stride) = scope.hand_in(method()) {
                shared.set_stride(stride);
            }
        }
        scope.cell = None;
        let deadline = scope.call_context.deadline;
        scope.recycle();
        deadline
    }

    /// Fills in what the caller knows while it is still at hand: an inline turn that is suspended outlives its caller's poll.
    pub(crate) fn part_from_caller(&mut self) {
        with_current(|caller| {
            self.name_caller(caller.as_deref());
            let Some(caller) = caller else { return };
            // From here on each goes its own way, and a cycle is only found by the chain's id.
            if self.call_context.chain().is_none() {
                caller.ensure_chain(&*self.cell().host());
                self.call_context
                    .set_chain(caller.call_context.chain().expect("it was just given one"));
            }
        });
        // What it does from here on is no longer within the caller's time.
        if let Some(measure) = &mut self.measure {
            measure.stands_for = 0;
        }
    }

    /// Makes sure that the chain has an id, also in the outer turns that belong to it.
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

    /// Notes who called, unless that is known: the turn that this one was called in, or a client in this process.
    fn name_caller(&mut self, caller: Option<&Scope>) {
        if self.origin.is_none() {
            let caller = self.called_by(caller);
            self.origin = Some(Origin { caller, from: HERE });
        }
    }

    /// Who called, if it was within this process.
    fn called_by(&self, caller: Option<&Scope>) -> Caller {
        match caller {
            Some(caller) => Caller::Actor(caller.cell().id()),
            None => Caller::Client(self.cell().node()),
        }
    }

    /// The chain of calls that this turn belongs to, unless nobody else can belong to it.
    pub fn chain(&self) -> Option<ChainId> {
        self.call_context.chain()
    }

    /// When the caller stops waiting.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.call_context.deadline
    }

    /// The tenant on whose account the turn runs.
    pub(crate) fn tenant(&self) -> TenantId {
        self.call_context.tenant
    }

    /// The values that call context along.
    pub(crate) fn values(&self) -> Option<&RequestContext> {
        self.call_context.values()
    }

    /// The turn's place in a trace.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.call_context.trace()
    }

    /// Who called.
    pub(crate) fn caller(&self) -> Caller {
        match &self.origin {
            Some(origin) => origin.caller.clone(),
            None => self.called_by(self.outer.as_deref()),
        }
    }

    /// The actor whose turn it is.
    #[inline]
    pub(crate) fn cell(&self) -> &Arc<dyn CellHandle> {
        self.cell.as_ref().expect("a turn has its cell")
    }
}

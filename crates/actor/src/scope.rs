//! The turn that this thread is in: set around every poll of a turn, so that calls know who makes them.
//!
//! Scopes nest: an inline call runs inside its caller's poll, and its scope lies on top of the caller's. The stack of scopes
//! on a thread is therefore the chain of inline calls, which is how a cycle among them is found.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::Waker;

use elastin_types::{ActorId, Caller, ChainId, Method, RequestContext, TenantId, Time, TraceContext};

use crate::body::Body;
use crate::flow::{AddedValues, Carried, Flow, NEVER, Origin};
use crate::host::{Host, Seat, TurnMeasure};
use crate::measure::Measure;
use crate::span::TurnSpan;

thread_local! {
    // Without a destructor, because access to a variable that has one costs several times as much.
    static TURNS: Cell<ManuallyDrop<Vec<Scope>>> = const { Cell::new(ManuallyDrop::new(Vec::new())) };
    static CLEANUP: Cleanup = const { Cleanup };
}

/// Frees the stack when its thread ends.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(ManuallyDrop::into_inner(TURNS.take()));
    }
}

/// The turns that this thread is in, innermost last. They are out of their place until this is dropped; what is done with
/// them meanwhile makes no calls.
struct Stack {
    turns: ManuallyDrop<Vec<Scope>>,
}

impl Stack {
    #[inline]
    fn take() -> Self {
        Self { turns: TURNS.take() }
    }

    #[inline]
    fn push(&mut self, scope: Scope) {
        if self.turns.len() == self.turns.capacity() {
            self.grow();
        }
        self.turns.push(scope);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        CLEANUP.with(|_| {});
        self.turns.reserve(8);
    }
}

impl Drop for Stack {
    #[inline]
    fn drop(&mut self) {
        TURNS.set(std::mem::take(&mut self.turns));
    }
}

/// A turn as long as it lasts: who runs, on whose behalf, and what is measured.
pub struct Scope {
    seat: Arc<dyn Seat>,
    flow: Flow,
    /// Who called. `None` for an inline call, whose caller is the scope below.
    origin: Option<Origin>,
    /// Boxed, because most turns are not measured.
    measure: Option<Box<Measure>>,
}

/// How many turns this thread is inside of: 0 outside any turn.
#[inline]
pub(crate) fn depth() -> u32 {
    Stack::take().turns.len() as u32
}

/// Shows the innermost turn of this thread, if there is one.
#[inline]
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&mut Scope>) -> T) -> T {
    look(Stack::take().turns.last_mut())
}

/// Whether this thread is inside a turn of that actor, so that waiting for it would be waiting for itself.
pub(crate) fn is_inside(actor: &ActorId) -> bool {
    Stack::take().turns.iter().any(|scope| scope.seat.id() == actor)
}

/// Who called the innermost turn.
///
/// # Panics
/// Outside any turn.
pub(crate) fn caller() -> Caller {
    match &Stack::take().turns[..] {
        [
            ..,
            Scope {
                origin: Some(origin), ..
            },
        ] => origin.caller.clone(),
        [.., caller, _] => Caller::Actor(caller.seat.id().clone()),
        _ => panic!("a context is used within its own turn"),
    }
}

/// What a call or tell carries that is made now, within the current turn or outside any. `size` is asked for the size of the
/// arguments if the call is measured.
#[inline]
pub(crate) fn carried(
    host: &dyn Host,
    callee: (&ActorId, Method),
    deadline: Time,
    added: AddedValues,
    one_way: bool,
    size: impl FnOnce() -> u64,
) -> Carried {
    let mut stack = Stack::take();
    let (caller, mut flow) = match stack.turns.last_mut() {
        Some(scope) => {
            if scope.measure.is_some() {
                scope.record_call(callee, size);
            }
            if !one_way && scope.flow.chain().is_none() {
                begin_chain(&mut stack.turns, host);
            }
            let scope = stack.turns.last().expect("it was there before");
            let flow = if one_way {
                scope.flow.apart()
            } else {
                scope.flow.clone()
            };
            (Caller::Actor(scope.seat.id().clone()), flow)
        }
        None => (Caller::Client(host.node()), Flow::new(host.tenant())),
    };
    drop(stack);
    flow.deadline = flow.deadline.min(deadline);
    flow.add(added);
    Carried::here(caller, flow, one_way)
}

/// Gives the chain of the innermost turn an id, also in the outer turns that belong to it.
#[cold]
fn begin_chain(stack: &mut [Scope], host: &dyn Host) {
    let chain = ChainId(host.next_call());
    let outwards = stack.iter_mut().rev();
    for scope in outwards.take_while(|scope| scope.flow.chain().is_none()) {
        scope.flow.set_chain(chain);
    }
}

impl Scope {
    /// Enters the turn of an inline call on the caller's thread. `size` is asked for the size of the arguments if the turn is
    /// measured.
    #[inline]
    pub(crate) fn enter_inline<'h, A>(
        body: &mut Body<A>,
        host: impl FnOnce() -> &'h Arc<dyn Host>,
        method: Method,
        deadline: Time,
        added: AddedValues,
        size: impl FnOnce() -> u64,
    ) {
        let seat = body.take_seat();
        let measured = body.measure_next();
        let mut stack = Stack::take();
        let (mut flow, origin, called) = match stack.turns.last_mut() {
            Some(caller) => {
                let called = caller.measure.as_mut().and_then(|measure| measure.next_call());
                (caller.flow.clone(), None, called)
            }
            None => from_outside(&**host()),
        };
        if deadline != NEVER {
            flow.deadline = flow.deadline.min(deadline);
        }
        flow.add(added);
        let mut measure = None;
        if measured.is_some() || called.is_some() {
            let caller = stack.turns.last();
            measure = Some(measure_inline(&*seat, method, measured, called, caller, size()));
        }
        if flow.trace().is_some() {
            measure = Some(begin_span(&*seat, &mut flow, measure));
        }
        stack.push(Scope {
            seat,
            flow,
            origin,
            measure,
        });
    }

    /// Enters a turn out of the mailbox. `size` is asked for the size of the arguments if the turn is measured.
    #[inline]
    pub fn enter_message<A>(body: &mut Body<A>, carried: Carried, size: impl FnOnce() -> u64) {
        let seat = body.take_seat();
        let measured = body.measure_next();
        let mut measure = measured.map(|weight| Box::new(Measure::new(weight, seat.now(), size())));
        let (mut flow, origin) = carried.into_flow(|| seat.node());
        if flow.trace().is_some() {
            measure = Some(begin_span(&*seat, &mut flow, measure));
        }
        Stack::take().push(Self {
            seat,
            flow,
            origin: Some(origin),
            measure,
        });
    }

    /// Enters a turn that was left before it was over.
    #[inline]
    pub fn resume(mut self) {
        if let Some(measure) = &mut self.measure {
            measure.resume(self.seat.now());
        }
        Stack::take().push(self);
    }

    /// Leaves the innermost turn of this thread after a poll.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn leave() -> Self {
        let mut stack = Stack::take();
        let scope = stack.turns.pop();
        let mut scope = scope.expect("a turn is left by the thread that entered it");
        if scope.measure.is_some() {
            scope.stop_clock(stack.turns.last_mut());
        }
        scope
    }

    /// Takes in the time of a poll that is over.
    #[cold]
    fn stop_clock(&mut self, mut caller: Option<&mut Scope>) {
        if let Some(measure) = &mut self.measure {
            let caller = caller.as_mut().and_then(|caller| caller.measure.as_deref_mut());
            measure.pause(self.seat.now(), caller);
        }
        if self.origin.is_none() {
            self.origin = caller.map(|caller| caller.as_origin());
        }
    }

    /// Leaves the innermost turn of this thread, which is over: hands in what was measured and gives back what was lent. Gives
    /// the deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn end<A>(body: &mut Body<A>, waker: Waker, method: impl FnOnce() -> Method) -> Time {
        let mut stack = Stack::take();
        let mut scope = stack.turns.pop().expect("a turn is left by the thread that entered it");
        if scope.measure.is_some() {
            scope.stop_clock(stack.turns.last_mut());
            scope.hand_in(body, method());
        }
        body.restore(scope.seat, waker);
        scope.flow.deadline
    }

    /// Hands in what was measured.
    #[cold]
    fn hand_in<A>(&mut self, body: &mut Body<A>, method: Method) {
        let (Some(mut measure), Some(origin)) = (self.measure.take(), self.origin.take()) else {
            return;
        };
        if let Some(span) = measure.span.take() {
            span.end(&*self.seat, method);
        }
        if measure.weight > 0 {
            body.set_stride(self.seat.record_turn(&TurnMeasure {
                weight: measure.weight,
                busy: measure.busy,
                latency: measure.latency,
                caller: origin.caller,
                from: origin.from,
                method,
                bytes: measure.bytes,
            }));
        }
    }

    /// Fills in what the caller knows while it is still at hand: an inline turn that is suspended outlives its caller's poll.
    pub(crate) fn part_from_caller(&mut self) {
        let mut stack = Stack::take();
        if let Some(caller) = stack.turns.last() {
            if self.origin.is_none() {
                self.origin = Some(caller.as_origin());
            }
            // From here on each goes its own way, and a cycle is only found by the chain's id.
            if self.flow.chain().is_none() {
                begin_chain(&mut stack.turns, &*self.seat.host());
                let chain = stack.turns.last().and_then(|caller| caller.flow.chain());
                self.flow.set_chain(chain.expect("it was just given one"));
            }
        }
        drop(stack);
        // What it does from here on is no longer within the caller's time.
        if let Some(measure) = &mut self.measure {
            measure.stands_for = 0;
        }
    }

    fn as_origin(&self) -> Origin {
        Origin {
            caller: Caller::Actor(self.seat.id().clone()),
            from: self.seat.node(),
        }
    }

    /// The chain of calls that this turn belongs to, unless nobody else can belong to it.
    pub fn chain(&self) -> Option<ChainId> {
        self.flow.chain()
    }

    /// When the caller stops waiting.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.flow.deadline
    }

    /// The tenant on whose account the turn runs.
    pub(crate) fn tenant(&self) -> TenantId {
        self.flow.tenant
    }

    /// The values that flow along.
    pub(crate) fn values(&self) -> Option<&RequestContext> {
        self.flow.values()
    }

    /// The turn's place in a trace.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.flow.trace()
    }

    /// The actor whose turn it is.
    pub(crate) fn seat(&self) -> &Arc<dyn Seat> {
        &self.seat
    }

    /// Counts a call that does not run inline.
    #[cold]
    fn record_call(&mut self, (callee, method): (&ActorId, Method), size: impl FnOnce() -> u64) {
        if let Some(measure) = &mut self.measure
            && let Some(stands_for) = measure.next_call()
            && measure.weight > 0
        {
            let weight = measure.weight * stands_for;
            self.seat.record_call(callee, method, size(), weight);
        }
    }
}

/// What flows to a turn that was called from outside any turn, and who called it.
#[cold]
fn from_outside(host: &dyn Host) -> (Flow, Option<Origin>, Option<u32>) {
    let from = host.node();
    let caller = Caller::Client(from);
    (Flow::new(host.tenant()), Some(Origin { caller, from }), None)
}

/// Begins to measure an inline turn, because it is its turn to be measured or because its caller's call is.
#[cold]
fn measure_inline(
    seat: &dyn Seat,
    method: Method,
    measured: Option<u32>,
    called: Option<u32>,
    caller: Option<&Scope>,
    bytes: u64,
) -> Box<Measure> {
    let mut measure = Measure::new(measured.unwrap_or(0), seat.now(), bytes);
    if let (Some(caller), Some(stands_for)) = (caller, called) {
        measure.stands_for = stands_for;
        let weight = caller.measure.as_ref().map_or(0, |measure| measure.weight);
        if weight > 0 {
            caller.seat.record_call(seat.id(), method, bytes, weight * stands_for);
        }
    }
    Box::new(measure)
}

/// Makes a turn that belongs to a trace a place of its own in it, with a span if the trace is recorded. Its time is taken
/// for that, though it may not be its turn to be measured.
#[cold]
fn begin_span(seat: &dyn Seat, flow: &mut Flow, measure: Option<Box<Measure>>) -> Box<Measure> {
    let mut measure = measure.unwrap_or_else(|| Box::new(Measure::new(0, seat.now(), 0)));
    if let Some(parent) = flow.trace() {
        let number = seat.host().next_call();
        let place = parent.child(number.sequence ^ number.origin.0.rotate_left(32));
        flow.set_trace(place);
        if place.is_sampled() {
            let span = TurnSpan::begin(seat, place, parent);
            span.enter();
            measure.span = Some(span);
        }
    }
    measure
}

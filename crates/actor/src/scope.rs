//! The turn that this thread is in: set around every poll of a turn, so that calls know who makes them.
//!
//! Scopes nest: an inline call runs inside its caller's poll, and the caller's scope waits in `outer` meanwhile. The chain of
//! scopes on a thread is therefore the chain of inline calls, which is how a cycle among them is found.

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

/// How many scopes a thread keeps for later turns: inline calls nest less deep than this almost always.
const POOLED_MAX: u32 = 64;

/// A list of scopes, each in `outer` of the one before it.
type List = Cell<ManuallyDrop<Option<Box<Scope>>>>;

thread_local! {
    // None of them has a destructor, because access to a variable that has one costs several times as much.
    /// The turns that this thread is in, innermost first.
    static CURRENT: List = const { Cell::new(ManuallyDrop::new(None)) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Scopes for later turns. INVARIANT: what is in the pool has nothing in it.
    static POOL: List = const { Cell::new(ManuallyDrop::new(None)) };
    static POOLED: Cell<u32> = const { Cell::new(0) };
    static CLEANUP: Cleanup = const { Cleanup };
}

/// Frees the pool when its thread ends.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        let mut pooled = ManuallyDrop::into_inner(POOL.take());
        // One by one: a long list would recurse.
        while let Some(mut scope) = pooled {
            pooled = scope.outer.take();
        }
    }
}

/// The innermost turn of this thread. It is out of its place until this is dropped; what is done with it meanwhile makes no
/// calls.
struct Innermost(ManuallyDrop<Option<Box<Scope>>>);

impl Innermost {
    #[inline]
    fn take() -> Self {
        Self(CURRENT.take())
    }

    #[inline]
    fn scope(&mut self) -> Option<&mut Scope> {
        self.0.as_deref_mut()
    }
}

impl Drop for Innermost {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}

#[inline]
fn enter(mut scope: Box<Scope>) {
    scope.outer = ManuallyDrop::into_inner(CURRENT.take());
    CURRENT.set(ManuallyDrop::new(Some(scope)));
    DEPTH.set(DEPTH.get() + 1);
}

#[inline]
fn leave() -> Box<Scope> {
    let scope = ManuallyDrop::into_inner(CURRENT.take());
    let mut scope = scope.expect("a turn is left by the thread that entered it");
    CURRENT.set(ManuallyDrop::new(scope.outer.take()));
    DEPTH.set(DEPTH.get() - 1);
    scope
}

/// A turn as long as it lasts: who runs, on whose behalf, and what is measured.
pub struct Scope {
    /// Always there, but in the pool.
    seat: Option<Arc<dyn Seat>>,
    flow: Flow,
    /// Who called. `None` for an inline call, whose caller is the outer scope.
    origin: Option<Origin>,
    /// Boxed, because most turns are not measured.
    measure: Option<Box<Measure>>,
    outer: Option<Box<Scope>>,
}

/// How many turns this thread is inside of: 0 outside any turn.
#[inline]
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Shows the innermost turn of this thread, if there is one.
#[inline]
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&mut Scope>) -> T) -> T {
    look(Innermost::take().scope())
}

/// Whether this thread is inside a turn of that actor, so that waiting for it would be waiting for itself.
pub(crate) fn is_inside(actor: &ActorId) -> bool {
    with_current(|scope| {
        let mut scope = scope.as_deref();
        while let Some(inner) = scope {
            if inner.seat().id() == actor {
                return true;
            }
            scope = inner.outer.as_deref();
        }
        false
    })
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
    let mut innermost = Innermost::take();
    let (caller, mut flow) = match innermost.scope() {
        Some(scope) => {
            if scope.measure.is_some() {
                scope.record_call(callee, size);
            }
            let flow = if one_way {
                scope.flow.apart()
            } else {
                scope.ensure_chain(host);
                scope.flow.clone()
            };
            (Caller::Actor(scope.seat().id().clone()), flow)
        }
        None => (Caller::Client(host.node()), Flow::new(host.tenant())),
    };
    drop(innermost);
    flow.deadline = flow.deadline.min(deadline);
    flow.add(added);
    Carried::here(caller, flow, one_way)
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
        let mut scope = Self::fresh();
        let measured = body.measure_next();
        let mut innermost = Innermost::take();
        let mut is_measured = measured.is_some();
        match innermost.scope() {
            Some(caller) => {
                scope.flow = caller.flow.clone();
                is_measured |= caller.measure.is_some();
            }
            None => scope.called_from_outside(&**host()),
        }
        scope.seat = Some(body.take_seat());
        if deadline != NEVER {
            scope.flow.deadline = scope.flow.deadline.min(deadline);
        }
        scope.flow.add(added);
        if is_measured {
            scope.measure_inline(method, measured, innermost.scope(), size);
        }
        drop(innermost);
        if scope.flow.trace().is_some() {
            scope.begin_span();
        }
        enter(scope);
    }

    /// Enters a turn out of the mailbox. `size` is asked for the size of the arguments if the turn is measured.
    #[inline]
    pub fn enter_message<A>(body: &mut Body<A>, carried: Carried, size: impl FnOnce() -> u64) {
        let mut scope = Self::fresh();
        let seat = body.take_seat();
        if let Some(weight) = body.measure_next() {
            scope.measure = Some(Box::new(Measure::new(weight, seat.now(), size())));
        }
        let (flow, origin) = carried.into_flow(|| seat.node());
        scope.flow = flow;
        scope.origin = Some(origin);
        scope.seat = Some(seat);
        if scope.flow.trace().is_some() {
            scope.begin_span();
        }
        enter(scope);
    }

    /// Enters a turn that was left before it was over.
    #[inline]
    pub fn resume(mut self: Box<Self>) {
        if self.measure.is_some() {
            self.start_clock();
        }
        enter(self);
    }

    /// Leaves the innermost turn of this thread after a poll.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn leave() -> Box<Self> {
        let mut scope = leave();
        if scope.measure.is_some() {
            scope.stop_clock();
        }
        scope
    }

    /// Leaves the innermost turn of this thread, which is over: hands in what was measured and gives back what was lent. Gives
    /// the deadline.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn end<A>(body: &mut Body<A>, waker: Waker, method: impl FnOnce() -> Method) -> Time {
        let mut scope = leave();
        if scope.measure.is_some() {
            scope.stop_clock();
            scope.hand_in(body, method());
        }
        body.restore(scope.seat.take().expect("a turn has its seat"), waker);
        let deadline = scope.flow.deadline;
        scope.recycle();
        deadline
    }

    #[cold]
    fn start_clock(&mut self) {
        let now = self.seat().now();
        if let Some(measure) = &mut self.measure {
            measure.resume(now);
        }
    }

    /// Takes in the time of a poll that is over.
    #[cold]
    fn stop_clock(&mut self) {
        let now = self.seat().now();
        with_current(|mut caller| {
            if let Some(measure) = &mut self.measure {
                let caller = caller.as_mut().and_then(|caller| caller.measure.as_deref_mut());
                measure.pause(now, caller);
            }
            if self.origin.is_none() {
                self.origin = caller.map(|caller| caller.as_origin());
            }
        });
    }

    /// Hands in what was measured.
    #[cold]
    fn hand_in<A>(&mut self, body: &mut Body<A>, method: Method) {
        let (Some(mut measure), Some(origin)) = (self.measure.take(), self.origin.take()) else {
            return;
        };
        if let Some(span) = measure.span.take() {
            span.end(&**self.seat(), method);
        }
        if measure.weight > 0 {
            body.set_stride(self.seat().record_turn(&TurnMeasure {
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
        with_current(|caller| {
            let Some(caller) = caller else { return };
            if self.origin.is_none() {
                self.origin = Some(caller.as_origin());
            }
            // From here on each goes its own way, and a cycle is only found by the chain's id.
            if self.flow.chain().is_none() {
                caller.ensure_chain(&*self.seat().host());
                self.flow.set_chain(caller.flow.chain().expect("it was just given one"));
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
        if self.flow.chain().is_none() {
            self.begin_chain(ChainId(host.next_call()));
        }
    }

    #[cold]
    fn begin_chain(&mut self, chain: ChainId) {
        self.flow.set_chain(chain);
        let mut outer = self.outer.as_deref_mut();
        while let Some(scope) = outer.take_if(|scope| scope.flow.chain().is_none()) {
            scope.flow.set_chain(chain);
            outer = scope.outer.as_deref_mut();
        }
    }

    fn as_origin(&self) -> Origin {
        Origin {
            caller: Caller::Actor(self.seat().id().clone()),
            from: self.seat().node(),
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

    /// Who called.
    pub(crate) fn caller(&self) -> Caller {
        match (&self.origin, &self.outer) {
            (Some(origin), _) => origin.caller.clone(),
            (None, Some(caller)) => Caller::Actor(caller.seat().id().clone()),
            (None, None) => unreachable!("an inline turn is inside its caller's"),
        }
    }

    /// The actor whose turn it is.
    #[inline]
    pub(crate) fn seat(&self) -> &Arc<dyn Seat> {
        self.seat.as_ref().expect("a turn has its seat")
    }

    /// Counts a call that does not run inline.
    #[cold]
    fn record_call(&mut self, (callee, method): (&ActorId, Method), size: impl FnOnce() -> u64) {
        if let Some(measure) = &mut self.measure
            && let Some(stands_for) = measure.next_call()
            && measure.weight > 0
        {
            let weight = measure.weight * stands_for;
            self.seat().record_call(callee, method, size(), weight);
        }
    }

    /// Begins to measure an inline turn, because it is its turn to be measured or because its caller's call is.
    #[cold]
    fn measure_inline(
        &mut self,
        method: Method,
        measured: Option<u32>,
        caller: Option<&mut Scope>,
        size: impl FnOnce() -> u64,
    ) {
        let mut calling = None;
        if let Some(caller) = caller
            && let Some(measure) = &mut caller.measure
            && let Some(stands_for) = measure.next_call()
        {
            calling = Some((stands_for, measure.weight, caller.seat()));
        }
        if measured.is_none() && calling.is_none() {
            return;
        }
        let bytes = size();
        let mut measure = Measure::new(measured.unwrap_or(0), self.seat().now(), bytes);
        if let Some((stands_for, weight, caller)) = calling {
            measure.stands_for = stands_for;
            if weight > 0 {
                caller.record_call(self.seat().id(), method, bytes, weight * stands_for);
            }
        }
        self.measure = Some(Box::new(measure));
    }

    /// Makes a turn that belongs to a trace a place of its own in it, with a span if the trace is recorded. Its time is taken
    /// for that, though it may not be its turn to be measured.
    #[cold]
    fn begin_span(&mut self) {
        let Some(parent) = self.flow.trace() else { return };
        let number = self.seat().host().next_call();
        let place = parent.child(number.sequence ^ number.origin.0.rotate_left(32));
        self.flow.set_trace(place);
        if place.is_sampled() {
            let span = TurnSpan::begin(&**self.seat(), place, parent);
            span.enter();
            let now = self.seat().now();
            let measure = self.measure.get_or_insert_with(|| Box::new(Measure::new(0, now, 0)));
            measure.span = Some(span);
        }
    }

    /// The turn was called from outside any turn.
    #[cold]
    fn called_from_outside(&mut self, host: &dyn Host) {
        self.flow = Flow::new(host.tenant());
        let from = host.node();
        let caller = Caller::Client(from);
        self.origin = Some(Origin { caller, from });
    }

    /// A scope with nothing in it.
    #[inline]
    fn fresh() -> Box<Self> {
        match ManuallyDrop::into_inner(POOL.take()) {
            Some(mut scope) => {
                POOL.set(ManuallyDrop::new(scope.outer.take()));
                POOLED.set(POOLED.get() - 1);
                scope
            }
            None => Self::empty(),
        }
    }

    #[cold]
    fn empty() -> Box<Self> {
        CLEANUP.with(|_| {});
        Box::new(Self {
            seat: None,
            flow: Flow::new(TenantId(0)),
            origin: None,
            measure: None,
            outer: None,
        })
    }

    /// Keeps a scope that is not needed any longer.
    #[inline]
    fn recycle(mut self: Box<Self>) {
        self.flow.clear();
        if self.origin.is_some() {
            self.origin = None;
        }
        if self.measure.is_some() {
            self.measure = None;
        }
        if POOLED.get() < POOLED_MAX {
            self.outer = ManuallyDrop::into_inner(POOL.take());
            POOL.set(ManuallyDrop::new(Some(self)));
            POOLED.set(POOLED.get() + 1);
        }
    }
}

//! The turn that this thread is in: set around every poll of a turn, so that calls know who makes them.
//!
//! Scopes nest: an inline call runs inside its caller's poll, and the caller's scope waits in `previous` meanwhile. The
//! chain of scopes on a thread is therefore the chain of inline calls, which is how a cycle among them is found.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use elastin_types::{
    ActorId, CallId, Caller, ChainId, Header, Method, NodeId, RequestContext, TenantId, Time, TraceContext,
};

use crate::body::Body;
use crate::host::{Host, Seat, TurnMeasure};

/// How many calls of a measured turn are measured one by one before only some are.
const EXACT_CALLS: u32 = 64;

/// How many calls of a measured turn one stands for when there are many, on average. The stride varies around it: with a
/// fixed one, callees that are called in a pattern would be seen always or never.
const CALL_STRIDE: u32 = 16;

/// How many values flow along with a call at most: it is copied into every message.
const REQUEST_VALUES_MAX: usize = 32;

/// How many scopes a thread keeps for later turns: inline calls nest less deep than this almost always.
const POOLED_MAX: u32 = 64;

/// What a thread knows of the turns it is in. One variable, because every call looks at all of it.
struct Thread {
    depth: Cell<u32>,
    current: Cell<Option<Box<Scope>>>,
    /// Scopes for later turns, each one the `previous` of the one before.
    pool: Cell<Option<Box<Scope>>>,
    pooled: Cell<u32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            current: Cell::new(None),
            pool: Cell::new(None),
            pooled: Cell::new(0),
        }
    };
}

impl Thread {
    /// A scope with nothing in it.
    #[inline]
    fn fresh(&self) -> Box<Scope> {
        match self.pool.take() {
            Some(mut scope) => {
                self.pool.set(scope.previous.take());
                self.pooled.set(self.pooled.get() - 1);
                scope
            }
            None => Box::new(Scope::empty()),
        }
    }

    /// Keeps a scope that is not needed any longer. INVARIANT: what is in the pool has nothing in it.
    #[inline]
    fn keep(&self, mut scope: Box<Scope>) {
        scope.clear();
        if self.pooled.get() < POOLED_MAX {
            scope.previous = self.pool.take();
            self.pool.set(Some(scope));
            self.pooled.set(self.pooled.get() + 1);
        }
    }

    #[inline]
    fn enter(&self, scope: Box<Scope>) {
        self.current.set(Some(scope));
        self.depth.set(self.depth.get() + 1);
    }
}

/// What flows from a turn to the calls it makes.
#[derive(Clone, Debug)]
struct Inherited {
    chain: ChainId,
    tenant: TenantId,
    deadline: Option<Time>,
    trace: Option<TraceContext>,
    source_time_ms: u64,
    context: Option<RequestContext>,
}

/// A turn that is being measured.
struct Measure {
    /// How many turns it stands for; 0 when it is only timed so that its time can be taken off its caller's.
    weight: u32,
    /// When the present poll began.
    resumed: Time,
    /// The time of polls that are over, without inline calls.
    busy: Duration,
    /// The time of inline calls in the present poll.
    inlined: Duration,
    /// How many calls the turn has made, until they are too many to measure all.
    calls: u32,
    /// How many calls the next measured one stands for, and how many of them are still to come.
    stride: u32,
    to_come: u32,
    dice: u32,
    /// How many inline calls of its caller this turn stands for: its time is taken off the caller's that many times.
    stands_for: u32,
    bytes: u64,
}

/// A turn as long as it lasts: who runs, on whose behalf, and what is measured.
pub struct Scope {
    seat: Option<Arc<dyn Seat>>,
    method: Method,
    inherited: Inherited,
    /// The call and its caller. `None` for an inline call, whose caller is the previous scope.
    origin: Option<(CallId, Caller)>,
    /// Boxed, because most turns are not measured.
    measure: Option<Box<Measure>>,
    previous: Option<Box<Scope>>,
}

/// How many turns this thread is inside of: 0 outside any turn.
#[inline]
pub(crate) fn depth() -> u32 {
    THREAD.with(|thread| thread.depth.get())
}

/// Shows the innermost turn of this thread, if there is one.
#[inline]
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&Scope>) -> T) -> T {
    THREAD.with(|thread| {
        let current = thread.current.take();
        let result = look(current.as_deref());
        thread.current.set(current);
        result
    })
}

/// Whether this thread is inside a turn of that actor, so that waiting for it would be waiting for itself.
pub(crate) fn is_inside(actor: &ActorId) -> bool {
    with_current(|mut scope| {
        while let Some(inner) = scope {
            if inner.seat.as_ref().is_some_and(|seat| seat.id() == actor) {
                return true;
            }
            scope = inner.previous.as_deref();
        }
        false
    })
}

/// The header of a call that is made now, within the current turn or outside any.
#[inline]
pub(crate) fn header(host: &dyn Host, deadline: Option<Time>, added: AddedValues, one_way: bool) -> Header {
    let call = host.next_call();
    with_current(|scope| {
        let root;
        let (inherited, caller) = match scope {
            Some(scope) => (&scope.inherited, Caller::Actor(scope.seat().id().clone())),
            None => {
                root = Inherited::root(host, call);
                (&root, Caller::Client(host.node()))
            }
        };
        // Nobody waits for a tell, so it can't close a cycle with the turn that sent it, and may outlast it.
        let (chain, deadline) = match one_way {
            true => (ChainId(call), deadline),
            false => (inherited.chain, earlier(deadline, inherited.deadline)),
        };
        Header {
            call,
            chain,
            caller,
            tenant: inherited.tenant,
            deadline,
            one_way,
            expected_cost: None,
            trace: inherited.trace,
            source_time_ms: inherited.source_time_ms,
            context: flowing(inherited.context.as_ref(), added),
        }
    })
}

/// Counts a call that does not run inline for the turn that makes it, if that turn is measured.
#[inline]
pub(crate) fn record_call(callee: &ActorId, method: Method, size: impl FnOnce() -> u64) {
    THREAD.with(|thread| {
        let mut current = thread.current.take();
        if let Some(scope) = &mut current
            && let Some((stands_for, weight)) = scope.measure_call()
            && weight > 0
        {
            scope.seat().record_call(callee, method, size(), weight * stands_for);
        }
        thread.current.set(current);
    });
}

/// Values that a call adds to those that flow along. Boxed, because most calls add none.
pub(crate) type AddedValues = Option<Box<Vec<(Box<str>, Box<str>)>>>;

/// The values that flow along with a call: those of the turn that makes it, with those of the call itself in their place or
/// added. The first ones go when there are too many.
#[inline]
fn flowing(inherited: Option<&RequestContext>, added: AddedValues) -> Option<RequestContext> {
    match added {
        None => inherited.cloned(),
        Some(added) => Some(with_added(inherited, *added)),
    }
}

fn with_added(inherited: Option<&RequestContext>, added: Vec<(Box<str>, Box<str>)>) -> RequestContext {
    let is_added = |name: &str| added.iter().any(|(new, _)| **new == *name);
    let kept = inherited.into_iter().flat_map(|values| values.iter());
    let mut values: Vec<_> = kept.filter(|(name, _)| !is_added(name)).cloned().collect();
    values.extend(added);
    let surplus = values.len().saturating_sub(REQUEST_VALUES_MAX);
    values.split_off(surplus).into()
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Inherited {
    const NOTHING: Self = Self {
        chain: ChainId(CallId {
            origin: NodeId(0),
            sequence: 0,
        }),
        tenant: TenantId(0),
        deadline: None,
        trace: None,
        source_time_ms: 0,
        context: None,
    };

    fn root(host: &dyn Host, call: CallId) -> Self {
        Self {
            chain: ChainId(call),
            tenant: host.tenant(),
            deadline: None,
            trace: None,
            source_time_ms: 0,
            context: None,
        }
    }
}

impl Scope {
    /// Enters the turn of an inline call on the caller's thread.
    pub(crate) fn enter_inline<A>(
        body: &mut Body<A>,
        method: Method,
        deadline: Option<Time>,
        added: AddedValues,
        size: impl FnOnce() -> u64,
    ) {
        let seat = body.seat.take().expect("an actor at rest has its seat");
        THREAD.with(|thread| {
            let mut scope = thread.fresh();
            let mut previous = thread.current.take();
            match &previous {
                Some(caller) => scope.inherited.clone_from(&caller.inherited),
                None => scope.begin_chain(&*seat),
            }
            if deadline.is_some() {
                scope.inherited.deadline = earlier(deadline, scope.inherited.deadline);
            }
            if added.is_some() {
                scope.inherited.context = flowing(scope.inherited.context.as_ref(), added);
            }
            scope.method = method;
            let measured = body.measure_next();
            let called = previous.as_mut().and_then(|caller| caller.measure_call());
            if measured.is_some() || called.is_some() {
                scope.measure = Some(measure_inline(
                    &*seat,
                    method,
                    measured,
                    called,
                    previous.as_deref(),
                    size(),
                ));
            }
            scope.seat = Some(seat);
            scope.previous = previous;
            thread.enter(scope);
        });
    }

    /// The scope of a turn out of the mailbox, to be entered with [`resume`](Scope::resume).
    pub fn of_message<A>(body: &mut Body<A>, method: Method, header: Header, size: impl FnOnce() -> u64) -> Box<Self> {
        let mut scope = THREAD.with(Thread::fresh);
        let seat = body.seat.take().expect("an actor at rest has its seat");
        scope.measure = body
            .measure_next()
            .map(|weight| Box::new(Measure::new(weight, seat.now(), size())));
        scope.seat = Some(seat);
        scope.method = method;
        scope.inherited = Inherited {
            chain: header.chain,
            tenant: header.tenant,
            deadline: header.deadline,
            trace: header.trace,
            source_time_ms: header.source_time_ms,
            context: header.context,
        };
        scope.origin = Some((header.call, header.caller));
        scope
    }

    /// Enters a turn that this thread polls.
    #[inline]
    pub fn resume(mut self: Box<Self>) {
        assert!(self.previous.is_none(), "a scope that is not entered has no outer one");
        if let Some(measure) = &mut self.measure {
            measure.resumed = self.seat.as_ref().expect("a turn has its seat").now();
            measure.inlined = Duration::ZERO;
        }
        THREAD.with(|thread| {
            self.previous = thread.current.take();
            thread.enter(self);
        });
    }

    /// Leaves the innermost turn of this thread after a poll.
    ///
    /// # Panics
    /// If this thread is in no turn.
    #[inline]
    pub fn leave() -> Box<Self> {
        THREAD.with(|thread| {
            let mut scope = thread
                .current
                .take()
                .expect("a turn is left by the thread that entered it");
            let mut previous = scope.previous.take();
            if scope.measure.is_some() {
                scope.stop_clock(previous.as_deref_mut());
            }
            thread.current.set(previous);
            thread.depth.set(thread.depth.get() - 1);
            scope
        })
    }

    /// Takes in the time of a poll that is over.
    #[cold]
    fn stop_clock(&mut self, mut previous: Option<&mut Scope>) {
        let Some(measure) = &mut self.measure else { return };
        let now = self.seat.as_ref().expect("a turn has its seat").now();
        let elapsed = now.since(measure.resumed);
        measure.busy += elapsed.saturating_sub(measure.inlined);
        if let Some(caller) = previous.as_mut().and_then(|previous| previous.measure.as_mut()) {
            caller.inlined += elapsed * measure.stands_for;
        }
        if self.origin.is_none() {
            self.origin = previous.map(|caller| caller.as_origin());
        }
    }

    /// Ends the turn: hands in what was measured and gives back what was lent.
    pub fn finish<A>(mut self: Box<Self>, body: &mut Body<A>, waker: std::task::Waker) {
        let seat = self.seat.take().expect("a turn has its seat");
        if let Some(measure) = self.measure.take()
            && let Some(stride) = self.hand_in(&*seat, &measure)
        {
            body.set_stride(stride);
        }
        body.restore(seat, waker);
        THREAD.with(|thread| thread.keep(self));
    }

    /// Hands in what was measured; gives how many turns the next measured one stands for.
    #[cold]
    fn hand_in(&mut self, seat: &dyn Seat, measure: &Measure) -> Option<u32> {
        let (call, caller) = self.origin.take()?;
        (measure.weight > 0).then(|| {
            seat.record_turn(&TurnMeasure {
                weight: measure.weight,
                busy: measure.busy,
                caller,
                from: call.origin,
                method: self.method,
                bytes: measure.bytes,
            })
        })
    }

    /// Drops the scope of a turn that panicked or was torn down.
    pub fn abandon(self: Box<Self>) {
        THREAD.with(|thread| thread.keep(self));
    }

    /// Fills in who called while that is still at hand: an inline turn that is suspended outlives its caller's poll.
    pub(crate) fn remember_caller(&mut self) {
        if self.origin.is_none() {
            self.origin = with_current(|caller| caller.map(Scope::as_origin));
        }
        // What it does from here on is no longer within the caller's time.
        if let Some(measure) = &mut self.measure {
            measure.stands_for = 0;
        }
    }

    fn as_origin(&self) -> (CallId, Caller) {
        // The inline call has no id of its own. It was made here, whatever node the chain began on.
        let call = CallId {
            origin: self.seat().host().node(),
            sequence: self.inherited.chain.0.sequence,
        };
        (call, Caller::Actor(self.seat().id().clone()))
    }

    /// The chain of calls that this turn belongs to.
    pub fn chain(&self) -> ChainId {
        self.inherited.chain
    }

    /// When the caller stops waiting.
    pub fn deadline(&self) -> Option<Time> {
        self.inherited.deadline
    }

    /// The tenant on whose account the turn runs.
    pub(crate) fn tenant(&self) -> TenantId {
        self.inherited.tenant
    }

    /// The values that flow along.
    pub(crate) fn context(&self) -> Option<&RequestContext> {
        self.inherited.context.as_ref()
    }

    /// Who called.
    pub(crate) fn caller(&self) -> Caller {
        match (&self.origin, &self.previous) {
            (Some((_, caller)), _) => caller.clone(),
            (None, Some(previous)) => Caller::Actor(previous.seat().id().clone()),
            (None, None) => unreachable!("an inline turn is inside its caller's"),
        }
    }

    /// The actor whose turn it is.
    pub(crate) fn seat(&self) -> &Arc<dyn Seat> {
        self.seat.as_ref().expect("a turn has its seat")
    }

    /// Counts a call that this turn makes. If it is to be measured, gives how many calls it stands for and how many turns
    /// this one stands for.
    fn measure_call(&mut self) -> Option<(u32, u32)> {
        let measure = self.measure.as_mut()?;
        measure.next_call().map(|stands_for| (stands_for, measure.weight))
    }

    fn empty() -> Self {
        Self {
            seat: None,
            method: Method::of(""),
            inherited: Inherited::NOTHING,
            origin: None,
            measure: None,
            previous: None,
        }
    }

    /// Lets go of everything that is not plain data.
    #[inline]
    fn clear(&mut self) {
        self.seat = None;
        if self.origin.is_some() {
            self.origin = None;
        }
        if self.measure.is_some() {
            self.measure = None;
        }
        if self.inherited.context.is_some() {
            self.inherited.context = None;
        }
        self.previous = None;
    }

    /// The turn is the first of a chain of calls, from outside any turn.
    #[cold]
    fn begin_chain(&mut self, seat: &dyn Seat) {
        let host = seat.host();
        let call = host.next_call();
        self.inherited = Inherited::root(&*host, call);
        self.origin = Some((call, Caller::Client(host.node())));
    }
}

/// Begins to measure an inline turn, because it is its turn to be measured or because its caller's call is.
#[cold]
fn measure_inline(
    seat: &dyn Seat,
    method: Method,
    measured: Option<u32>,
    called: Option<(u32, u32)>,
    caller: Option<&Scope>,
    bytes: u64,
) -> Box<Measure> {
    let mut measure = Measure::new(measured.unwrap_or(0), Time::ZERO, bytes);
    if let (Some(caller), Some((stands_for, weight))) = (caller, called) {
        measure.stands_for = stands_for;
        if weight > 0 {
            caller.seat().record_call(seat.id(), method, bytes, weight * stands_for);
        }
    }
    measure.resumed = seat.now();
    Box::new(measure)
}

impl Measure {
    /// How many calls the one that is made now stands for, if it is to be measured.
    fn next_call(&mut self) -> Option<u32> {
        if self.calls < EXACT_CALLS {
            self.calls += 1;
            return Some(1);
        }
        if self.to_come > 1 {
            self.to_come -= 1;
            return None;
        }
        let stands_for = self.stride;
        // From half the stride to one and a half times it, all equally often (a linear congruential generator).
        self.dice = self.dice.wrapping_mul(0x5851_f42d).wrapping_add(0x1405_7b7f);
        self.stride = CALL_STRIDE / 2 + (self.dice >> 16) % (CALL_STRIDE + 1);
        self.to_come = self.stride;
        Some(stands_for)
    }

    fn new(weight: u32, now: Time, bytes: u64) -> Self {
        Self {
            weight,
            resumed: now,
            busy: Duration::ZERO,
            inlined: Duration::ZERO,
            calls: 0,
            stride: 1,
            to_come: 0,
            dice: 0,
            stands_for: 0,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_a_pattern_are_counted_fairly() {
        const CALLS: u32 = 100_000;
        let mut measure = Measure::new(1, Time::ZERO, 0);
        let mut counted = [0; 2];
        for call in 0..CALLS {
            counted[(call % 2) as usize] += measure.next_call().unwrap_or(0);
        }
        for count in counted {
            let share = f64::from(count) / f64::from(CALLS);
            assert!((0.47..0.53).contains(&share), "{share}");
        }
        assert!(counted[0] + counted[1] <= CALLS);
        assert!(counted[0] + counted[1] > CALLS - 2 * CALL_STRIDE);
    }

    #[test]
    fn values_flow_along_and_are_replaced() {
        let value = |name: &str, value: &str| (Box::from(name), Box::from(value));
        let inherited: RequestContext = vec![value("user", "ada"), value("page", "1")].into();
        assert_eq!(flowing(Some(&inherited), None), Some(inherited.clone()));
        let added = Some(Box::new(vec![value("user", "eve")]));
        let expected: RequestContext = vec![value("page", "1"), value("user", "eve")].into();
        assert_eq!(flowing(Some(&inherited), added), Some(expected));
        let many = (0..REQUEST_VALUES_MAX)
            .map(|index| value(&index.to_string(), ""))
            .collect();
        let flowing = flowing(Some(&inherited), Some(Box::new(many))).expect("there are values");
        assert_eq!(flowing.len(), REQUEST_VALUES_MAX);
        assert!(flowing.iter().all(|(name, _)| **name != *"user"));
    }
}

//! The turn that this thread is in: set around every poll of a turn, so that calls know who makes them.
//!
//! Scopes nest: an inline call runs inside its caller's poll, and the caller's scope waits in `previous` meanwhile. The
//! chain of scopes on a thread is therefore the chain of inline calls, which is how a cycle among them is found.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use elastin_types::{ActorId, CallId, Caller, ChainId, Header, Method, RequestContext, TenantId, Time, TraceContext};

use crate::body::Body;
use crate::host::{Host, Seat, TurnMeasure};

/// How many scopes a thread keeps for later turns: inline calls nest less deep than this almost always.
const POOLED_MAX: usize = 64;

thread_local! {
    /// Apart from `CURRENT` because every call reads it first.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CURRENT: Cell<Option<Box<Scope>>> = const { Cell::new(None) };
    // Boxed because scopes travel between threads and scopes as boxes; only the boxes are kept here.
    #[allow(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Scope>>> = const { RefCell::new(Vec::new()) };
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
    bytes: u64,
}

/// A turn as long as it lasts: who runs, on whose behalf, and what is measured.
pub struct Scope {
    seat: Option<Arc<dyn Seat>>,
    method: Method,
    inherited: Inherited,
    /// The call and its caller. `None` for an inline call, whose caller is the previous scope.
    origin: Option<(CallId, Caller)>,
    measure: Option<Measure>,
    previous: Option<Box<Scope>>,
}

/// How many turns this thread is inside of: 0 outside any turn.
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Shows the innermost turn of this thread, if there is one.
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&Scope>) -> T) -> T {
    let current = CURRENT.take();
    let result = look(current.as_deref());
    CURRENT.set(current);
    result
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
pub(crate) fn header(host: &dyn Host, deadline: Option<Time>, one_way: bool) -> Header {
    let call = host.next_call();
    with_current(|scope| {
        let (inherited, caller) = match scope {
            Some(scope) => (scope.inherited.clone(), Caller::Actor(scope.seat().id().clone())),
            None => (Inherited::root(host, call), Caller::Client(host.node())),
        };
        Header {
            call,
            // Nobody waits for a tell, so it can't close a cycle with the turn that sent it.
            chain: if one_way { ChainId(call) } else { inherited.chain },
            caller,
            tenant: inherited.tenant,
            deadline: if one_way {
                deadline
            } else {
                earlier(deadline, inherited.deadline)
            },
            one_way,
            expected_cost: None,
            trace: inherited.trace,
            source_time_ms: inherited.source_time_ms,
            context: inherited.context,
        }
    })
}

/// Counts a call that does not run inline for the turn that makes it, if that turn is measured.
pub(crate) fn record_call(callee: &ActorId, method: Method, size: impl FnOnce() -> u64) {
    with_current(|scope| {
        if let Some((scope, weight)) = scope.and_then(|scope| scope.weight().map(|weight| (scope, weight))) {
            scope.seat().record_call(callee, method, size(), weight);
        }
    });
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Inherited {
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
        size: impl FnOnce() -> u64,
    ) {
        let seat = body.seat.take().expect("an actor at rest has its seat");
        let previous = CURRENT.take();
        let (mut inherited, origin) = match &previous {
            Some(caller) => (caller.inherited.clone(), None),
            None => {
                let host = seat.host();
                let call = host.next_call();
                let origin = (call, Caller::Client(host.node()));
                (Inherited::root(&*host, call), Some(origin))
            }
        };
        inherited.deadline = earlier(deadline, inherited.deadline);
        let measured = body.measure_next();
        let caller_measured = previous.as_ref().is_some_and(|caller| caller.measure.is_some());
        let measure = (measured.is_some() || caller_measured).then(|| {
            let bytes = size();
            if let Some(caller) = &previous
                && let Some(weight) = caller.weight()
            {
                caller.seat().record_call(seat.id(), method, bytes, weight);
            }
            Measure::new(measured.unwrap_or(0), seat.now(), bytes)
        });
        Self {
            seat: Some(seat),
            method,
            inherited,
            origin,
            measure,
            previous,
        }
        .boxed()
        .make_current();
    }

    /// The scope of a turn out of the mailbox, to be entered with [`resume`](Scope::resume).
    pub fn of_message<A>(body: &mut Body<A>, method: Method, header: Header, size: impl FnOnce() -> u64) -> Box<Self> {
        let seat = body.seat.take().expect("an actor at rest has its seat");
        let measure = body
            .measure_next()
            .map(|weight| Measure::new(weight, seat.now(), size()));
        Self {
            seat: Some(seat),
            method,
            inherited: Inherited {
                chain: header.chain,
                tenant: header.tenant,
                deadline: header.deadline,
                trace: header.trace,
                source_time_ms: header.source_time_ms,
                context: header.context,
            },
            origin: Some((header.call, header.caller)),
            measure,
            previous: None,
        }
        .boxed()
    }

    /// Enters a turn that this thread polls.
    pub fn resume(mut self: Box<Self>) {
        assert!(self.previous.is_none(), "a scope that is not entered has no outer one");
        self.previous = CURRENT.take();
        if let Some(measure) = &mut self.measure {
            measure.resumed = self.seat.as_ref().expect("a turn has its seat").now();
            measure.inlined = Duration::ZERO;
        }
        self.make_current();
    }

    /// Leaves the innermost turn of this thread after a poll.
    ///
    /// # Panics
    /// If this thread is in no turn.
    pub fn leave() -> Box<Self> {
        let mut scope = CURRENT.take().expect("a turn is left by the thread that entered it");
        let mut previous = scope.previous.take();
        if let Some(measure) = &mut scope.measure {
            let now = scope.seat.as_ref().expect("a turn has its seat").now();
            let elapsed = now.since(measure.resumed);
            measure.busy += elapsed.saturating_sub(measure.inlined);
            if let Some(caller) = previous.as_mut().and_then(|previous| previous.measure.as_mut()) {
                caller.inlined += elapsed;
            }
        }
        if scope.origin.is_none() && scope.measure.is_some() {
            scope.origin = previous.as_ref().map(|caller| caller.as_origin());
        }
        CURRENT.set(previous);
        DEPTH.set(DEPTH.get() - 1);
        scope
    }

    /// Ends the turn: hands in what was measured and gives back what was lent.
    pub fn finish<A>(mut self: Box<Self>, body: &mut Body<A>, waker: std::task::Waker) {
        let seat = self.seat.take().expect("a turn has its seat");
        if let Some(measure) = self.measure.take()
            && measure.weight > 0
            && let Some((call, caller)) = self.origin.take()
        {
            let next = seat.record_turn(&TurnMeasure {
                weight: measure.weight,
                busy: measure.busy,
                caller,
                from: call.origin,
                method: self.method,
                bytes: measure.bytes,
            });
            body.set_stride(next);
        }
        body.restore(seat, waker);
        self.recycle();
    }

    /// Drops the scope of a turn that panicked or was torn down.
    pub fn abandon(mut self: Box<Self>) {
        self.seat = None;
        self.recycle();
    }

    /// Fills in who called while that is still at hand: an inline turn that is suspended outlives its caller's poll.
    pub(crate) fn remember_caller(&mut self) {
        if self.origin.is_none() {
            self.origin = with_current(|caller| caller.map(Scope::as_origin));
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

    fn weight(&self) -> Option<u32> {
        self.measure
            .as_ref()
            .map(|measure| measure.weight)
            .filter(|weight| *weight > 0)
    }

    fn make_current(self: Box<Self>) {
        CURRENT.set(Some(self));
        DEPTH.set(DEPTH.get() + 1);
    }

    fn boxed(self) -> Box<Self> {
        match POOL.with_borrow_mut(Vec::pop) {
            Some(mut pooled) => {
                *pooled = self;
                pooled
            }
            None => Box::new(self),
        }
    }

    fn recycle(mut self: Box<Self>) {
        self.origin = None;
        self.inherited.context = None;
        POOL.with_borrow_mut(|pool| {
            if pool.len() < POOLED_MAX {
                pool.push(self);
            }
        });
    }
}

impl Measure {
    fn new(weight: u32, now: Time, bytes: u64) -> Self {
        Self {
            weight,
            resumed: now,
            busy: Duration::ZERO,
            inlined: Duration::ZERO,
            bytes,
        }
    }
}

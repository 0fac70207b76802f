//! What a handler can learn and ask for while its turn runs.

use std::sync::Arc;
use std::time::Duration;

use elastin_types::{ActorId, Caller, Key, NodeId, Reminder, TenantId, Time, TraceContext};

use crate::answer::answer;
use crate::call_context::NEVER;
use crate::codec::encode_state;
use crate::function::Function;
use crate::host::{CellHandle, Host, Timer, TimerId};
use crate::persist::{SaveDone, SaveError};
use crate::reference::{RawRef, Ref};
use crate::reminder::{ReminderError, ReminderRequest};
use crate::scope::{self, Scope};
use crate::{Actor, Call, TypedRef};

/// The context of the turn that runs: who the actor is, who called, until when, and how to reach other actors.
///
/// It is the turn's own: use it in the handler and in what the handler awaits, not on another thread.
///
/// # Panics
/// Every method panics when it is used outside the turn that it was given to.
#[derive(Debug)]
pub struct Ctx {
    _private: (),
}

impl Ctx {
    /// The context of whatever turn runs: it has no data of its own.
    #[doc(hidden)]
    pub const CURRENT: Ctx = Ctx { _private: () };

    /// The actor with this key, of the tenant on whose account this turn runs.
    pub fn actor<A: Actor>(&self, key: impl Into<Key>) -> Ref<A> {
        let (host, tenant) = look(|scope| (scope.cell().host(), scope.tenant()));
        Ref::bound(host, tenant, key)
    }

    /// A reference to this actor itself. A call to it from its own turn would wait for itself and gets
    /// [`CallCycle`](elastin_types::CallError::CallCycle), unless both handlers take `&self`; a tell is fine.
    ///
    /// # Panics
    /// If this actor is not an `A`.
    pub fn me<A: Actor>(&self) -> Ref<A> {
        let (host, id) = look(|scope| (scope.cell().host(), scope.cell().id()));
        assert!(id.kind == A::KIND, "this actor is not a `{}`", A::NAME);
        Ref::from_id_on(id, host)
    }

    /// This actor's id.
    pub fn id(&self) -> ActorId {
        look(|scope| scope.cell().id())
    }

    /// This actor's key.
    pub fn key(&self) -> Key {
        look(|scope| scope.cell().id().key)
    }

    /// The node that the actor is on at present.
    pub fn node(&self) -> NodeId {
        look(|scope| scope.cell().node())
    }

    /// Who called.
    pub fn caller(&self) -> Caller {
        look(|scope| scope.caller())
    }

    /// The tenant on whose account this turn runs.
    pub fn tenant(&self) -> TenantId {
        look(|scope| scope.tenant())
    }

    /// The time on this process's clock.
    pub fn now(&self) -> Time {
        look(|scope| scope.cell().now())
    }

    /// When the caller stops waiting; calls made by this turn inherit it.
    pub fn deadline(&self) -> Option<Time> {
        look(deadline)
    }

    /// How long the caller still waits; `None` if it set no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        look(|scope| Some(deadline(scope)?.since(scope.cell().now())))
    }

    /// A value of the request context, which flows along with calls from caller to callee.
    pub fn request_value(&self, name: &str) -> Option<String> {
        look(|scope| {
            let mut values = scope.values()?.iter();
            let (_, value) = values.find(|(known, _)| **known == *name)?;
            Some(value.to_string())
        })
    }

    /// This turn's place in a trace, if its call belongs to one: what a request that it makes out of the system carries as
    /// `traceparent`.
    pub fn trace(&self) -> Option<TraceContext> {
        look(|scope| scope.trace())
    }

    /// Ends this activation after the turn, as if the actor had been idle for long.
    pub fn deactivate(&self) {
        cell().deactivate();
    }

    /// Saves the actor's state as it is now; it is durable when the future has ended well. `ctx.save(self).await?` before
    /// a handler returns makes its reply depend on the save; before it reaches out of the system, it writes down what it
    /// is about to do.
    ///
    /// For types with `#[actor(persist(…))]`: others don't compile. Until it has ended well, what was saved before
    /// counts, and an error leaves the state in memory as it is: a handler that can't go on without it panics, which
    /// starts the actor again from what was saved.
    pub fn save<A: Actor>(&self, state: &A) -> impl Future<Output = Result<(), SaveError>> + Send + use<A> {
        const {
            assert!(
                A::PERSIST.is_kept(),
                "this actor is not kept: declare it with `#[actor(persist(on_request))]`"
            );
        }
        let (answerer, answer) = answer();
        let done: SaveDone = Box::new(move |result| answerer.put(result));
        let cell = cell();
        let kind = cell.id().kind;
        assert!(kind == A::KIND, "a turn saves its own actor, not a `{}`", A::NAME);
        match encode_state(state) {
            Ok(state) => cell.save_state(state, done),
            Err(error) => done(Err(error.into())),
        }
        async {
            let lost = || Err(SaveError::Unavailable("the store has ended".into()));
            answer.await.unwrap_or_else(lost)
        }
    }

    /// Sets a reminder: after a time, the actor's `#[on(reminder)]` handler is told, wherever the actor is then, also if it
    /// has been passivated or its server has crashed meanwhile. It is durable when the future has ended well, and comes at
    /// least once. Setting one of the same name again takes its place.
    ///
    /// Gives the reminder as it will be told: an actor that keeps those that it has acted on with its state acts once.
    pub fn remind(
        &self,
        name: &str,
        after: Duration,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        self.set_reminder(name, after, None)
    }

    /// Sets a reminder that comes again and again, until it is [forgotten](Ctx::forget). Due times that pass while nobody
    /// can be told are left out.
    pub fn remind_every(
        &self,
        name: &str,
        every: Duration,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        self.set_reminder(name, every, Some(every))
    }

    /// Forgets a reminder; says whether there was one. One that is just being told may still come.
    pub fn forget(&self, name: &str) -> impl Future<Output = Result<bool, ReminderError>> + Send + use<> {
        let forgotten = self.ask_reminders(ReminderRequest::Forget { name: name.to_owned() });
        async { forgotten.await.map(|reminder| reminder.is_some()) }
    }

    fn set_reminder(
        &self,
        name: &str,
        after: Duration,
        every: Option<Duration>,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        let name = name.to_owned();
        let set = self.ask_reminders(ReminderRequest::Set { name, after, every });
        async {
            set.await
                .map(|reminder| reminder.expect("a reminder that was set is told back"))
        }
    }

    fn ask_reminders(
        &self,
        request: ReminderRequest,
    ) -> impl Future<Output = Result<Option<Reminder>, ReminderError>> + Send + use<> {
        let (answerer, answer) = answer();
        cell().remind(request, Box::new(move |result| answerer.put(result)));
        async {
            let lost = || Err(ReminderError::Unavailable("the store has ended".into()));
            answer.await.unwrap_or_else(lost)
        }
    }

    /// Makes the call as a tell once, after a time, unless the activation ends before.
    pub fn after<F: Function>(&self, after: Duration, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        self.timer(after, None, call)
    }

    /// Makes the call as a tell again and again, until the timer is stopped or the activation ends. Ticks keep to their rhythm: one
    /// that comes late does not put off the next. A tick that finds the mailbox full is left out, and so are those that would have
    /// been due before a late one.
    pub fn every<F: Function>(&self, every: Duration, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        self.timer(every, Some(every), call)
    }

    /// Stops a timer of this activation. A tick that is already in the mailbox still comes.
    pub fn stop_timer(&self, timer: TimerId) {
        cell().stop_timer(timer);
    }

    fn timer<F: Function>(&self, after: Duration, every: Option<Duration>, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        let (target, arguments) = call.into_parts();
        let tick = Box::new(move || {
            // A full mailbox has ticks enough; whatever else is wrong, the next real call reports it.
            let _ = Call::<F>::new(&target, arguments.clone()).try_tell();
        });
        cell().start_timer(Timer { after, every, tick })
    }
}

/// The deadline of a turn, if it has one.
fn deadline(scope: &Scope) -> Option<Time> {
    Some(scope.deadline()).filter(|deadline| *deadline != NEVER)
}

/// The cell of this turn's actor, for what may run code of its own.
fn cell() -> Arc<dyn CellHandle> {
    look(|scope| scope.cell().clone())
}

fn look<T>(look: impl FnOnce(&Scope) -> T) -> T {
    scope::with_current(|scope| scope.map(|scope| look(scope))).expect("a context is used within its own turn")
}

/// A way into the system from outside any actor: what refs are made from in `main`, in tests and in gateways.
#[derive(Clone)]
pub struct Client {
    host: Arc<dyn Host>,
}

impl Client {
    /// A client of this process's host.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self { host }
    }

    /// The actor with this key, of the host's tenant.
    pub fn actor<A: Actor>(&self, key: impl Into<Key>) -> Ref<A> {
        Ref::bound(self.host.clone(), self.host.tenant(), key)
    }

    /// A reference, such as one that was decoded, that works outside turns.
    pub fn bind<A: Actor>(&self, reference: &Ref<A>) -> Ref<A> {
        Ref::from_id_on(reference.id().clone(), self.host.clone())
    }

    /// The host that calls go through.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
}

impl<A: Actor> Ref<A> {
    fn bound(host: Arc<dyn Host>, tenant: TenantId, key: impl Into<Key>) -> Self {
        let id = ActorId {
            tenant,
            kind: A::KIND,
            key: key.into(),
        };
        Self::from_id_on(id, host)
    }

    fn from_id_on(id: ActorId, host: Arc<dyn Host>) -> Self {
        Self::from(A::Ref::from_raw(RawRef::new(id, Some(host))))
    }
}

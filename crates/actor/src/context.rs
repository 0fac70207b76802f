//! The context of a running turn, and the client for code outside turns.

use std::sync::Arc;
use std::time::Duration;

use elastin_types::{ActorId, Caller, Key, NodeId, Reminder, TenantId, Time, TraceContext};

use crate::call_context::NEVER;
use crate::codec::encode_state;
use crate::function::Function;
use crate::host::{CellHandle, Host, Timer, TimerId};
use crate::oneshot;
use crate::persist::{SaveDone, SaveError};
use crate::reference::{RawRef, Ref};
use crate::reminder::{ReminderError, ReminderRequest};
use crate::scope::{self, Scope};
use crate::{Actor, Call, TypedRef};

/// The context of the running turn: the actor, its caller, the deadline, and references to other actors.
///
/// It belongs to the turn: use it in the handler and in futures that the handler awaits, not on another thread.
///
/// # Panics
/// Every method panics outside the turn that received the context.
#[derive(Debug)]
pub struct Ctx {
    _private: (),
}

impl Ctx {
    /// The context of the current turn: a handle without data of its own.
    #[doc(hidden)]
    pub const CURRENT: Ctx = Ctx { _private: () };

    /// The actor with this key, of this turn's tenant.
    pub fn actor<A: Actor>(&self, key: impl Into<Key>) -> Ref<A> {
        let (host, tenant) = with_scope(|scope| (scope.cell().host(), scope.call_context.tenant));
        Ref::bound(host, tenant, key)
    }

    /// A reference to this actor. A call to it from its own turn would deadlock and fails with
    /// [`CallCycle`](elastin_types::CallError::CallCycle), unless both handlers take `&self`. A tell is fine.
    ///
    /// # Panics
    /// If this actor is not an `A`.
    pub fn me<A: Actor>(&self) -> Ref<A> {
        let (host, id) = with_scope(|scope| (scope.cell().host(), scope.cell().id()));
        assert!(id.kind == A::KIND, "this actor is not a `{}`", A::NAME);
        Ref::from_id_on(id, host)
    }

    /// This actor's id.
    pub fn id(&self) -> ActorId {
        with_scope(|scope| scope.cell().id())
    }

    /// This actor's key.
    pub fn key(&self) -> Key {
        with_scope(|scope| scope.cell().id().key)
    }

    /// The node that the actor is currently on.
    pub fn node(&self) -> NodeId {
        with_scope(|scope| scope.cell().node())
    }

    /// The caller.
    pub fn caller(&self) -> Caller {
        with_scope(|scope| scope.caller())
    }

    /// The tenant that this turn runs for.
    pub fn tenant(&self) -> TenantId {
        with_scope(|scope| scope.call_context.tenant)
    }

    /// The time on this process's clock.
    pub fn now(&self) -> Time {
        with_scope(|scope| scope.cell().now())
    }

    /// The deadline of the call; calls made by this turn inherit it.
    pub fn deadline(&self) -> Option<Time> {
        with_scope(deadline)
    }

    /// The time left until the deadline; `None` without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        with_scope(|scope| Some(deadline(scope)?.since(scope.cell().now())))
    }

    /// A value of the request context, which propagates from caller to callee.
    pub fn request_value(&self, name: &str) -> Option<String> {
        with_scope(|scope| {
            let mut values = scope.call_context.values()?.iter();
            let (_, value) = values.find(|(known, _)| **known == *name)?;
            Some(value.to_string())
        })
    }

    /// This turn's trace context, if its call belongs to a trace. Send it as `traceparent` with requests to other
    /// systems.
    pub fn trace(&self) -> Option<TraceContext> {
        with_scope(|scope| scope.call_context.trace())
    }

    /// Ends this activation after the turn, as if the actor had been idle.
    pub fn deactivate(&self) {
        cell().deactivate();
    }

    /// Saves the actor's current state; it is durable once the future resolves to `Ok`. `ctx.save(self).await?` before
    /// a handler returns makes its reply depend on the save. Before a request to another system, it records the intent.
    ///
    /// Only for types with `#[actor(persist(…))]`; others don't compile. Until the save succeeds, the previously saved
    /// state counts. An error leaves the state in memory unchanged. A handler that can't continue without the save may
    /// panic, which restarts the actor from the saved state.
    pub fn save<A: Actor>(&self, state: &A) -> impl Future<Output = Result<(), SaveError>> + Send + use<A> {
        const {
            assert!(
                A::PERSIST.is_kept(),
                "this actor is not persistent: declare it with `#[actor(persist(on_request))]`"
            );
        }
        let (sender, receiver) = oneshot::channel();
        let done: SaveDone = Box::new(move |result| sender.send(result));
        let cell = cell();
        let kind = cell.id().kind;
        assert!(
            kind == A::KIND,
            "a turn can only save its own actor, not a `{}`",
            A::NAME
        );
        match encode_state(state) {
            Ok(state) => cell.save_state(state, done),
            Err(error) => done(Err(error.into())),
        }
        async {
            let lost = || Err(SaveError::Unavailable("the store has shut down".into()));
            receiver.await.unwrap_or_else(lost)
        }
    }

    /// Sets a reminder: after a delay, the actor's `#[on(reminder)]` handler is called, even if the actor was
    /// passivated or moved, or its server crashed. It is durable once the future resolves to `Ok`, and is delivered at
    /// least once. A reminder of the same name is replaced.
    ///
    /// Returns the reminder as it will be delivered. An actor that records processed reminders in its state can skip
    /// duplicates.
    pub fn remind(
        &self,
        name: &str,
        after: Duration,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        self.set_reminder(name, after, None)
    }

    /// Sets a periodic reminder, until it is [deleted](Ctx::forget). Due times that pass while the reminder can't be
    /// delivered are skipped.
    pub fn remind_every(
        &self,
        name: &str,
        every: Duration,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        self.set_reminder(name, every, Some(every))
    }

    /// Deletes a reminder. Returns whether it existed. A delivery in flight may still arrive.
    pub fn forget(&self, name: &str) -> impl Future<Output = Result<bool, ReminderError>> + Send + use<> {
        let deleted = self.request_reminder(ReminderRequest::Forget { name: name.to_owned() });
        async { deleted.await.map(|reminder| reminder.is_some()) }
    }

    fn set_reminder(
        &self,
        name: &str,
        after: Duration,
        every: Option<Duration>,
    ) -> impl Future<Output = Result<Reminder, ReminderError>> + Send + use<> {
        let name = name.to_owned();
        let set = self.request_reminder(ReminderRequest::Set { name, after, every });
        async {
            set.await
                .map(|reminder| reminder.expect("setting a reminder returns it"))
        }
    }

    fn request_reminder(
        &self,
        request: ReminderRequest,
    ) -> impl Future<Output = Result<Option<Reminder>, ReminderError>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        cell().remind(request, Box::new(move |result| sender.send(result)));
        async {
            let lost = || Err(ReminderError::Unavailable("the store has shut down".into()));
            receiver.await.unwrap_or_else(lost)
        }
    }

    /// Sends the call as a tell once, after a delay, unless the activation ends before.
    pub fn after<F: Function>(&self, after: Duration, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        self.timer(after, None, call)
    }

    /// Sends the call as a tell periodically, until the timer is stopped or the activation ends. Ticks keep a fixed
    /// schedule: a late tick does not delay the next. A tick that finds the mailbox full is skipped. So are ticks that
    /// were missed while an earlier one was late.
    pub fn every<F: Function>(&self, every: Duration, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        self.timer(every, Some(every), call)
    }

    /// Stops a timer of this activation. A tick that is already in the mailbox is still delivered.
    pub fn stop_timer(&self, timer: TimerId) {
        cell().stop_timer(timer);
    }

    fn timer<F: Function>(&self, after: Duration, every: Option<Duration>, call: Call<'_, F>) -> TimerId
    where
        F::Arguments: Clone + Sync,
    {
        let (target, arguments) = call.into_parts();
        let tick = Box::new(move || {
            // A full mailbox holds enough ticks; other errors surface with the next call.
            let _ = Call::<F>::new(&target, arguments.clone()).try_tell();
        });
        cell().start_timer(Timer { after, every, tick })
    }
}

/// The deadline of a turn, if it has one.
fn deadline(scope: &Scope) -> Option<Time> {
    Some(scope.call_context.deadline).filter(|deadline| *deadline != NEVER)
}

/// The cell of this turn's actor, cloned because its methods may run arbitrary code.
fn cell() -> Arc<dyn CellHandle> {
    with_scope(|scope| scope.cell().clone())
}

fn with_scope<T>(read: impl FnOnce(&Scope) -> T) -> T {
    scope::with_current(|scope| scope.map(|scope| read(scope))).expect("a context is used within its own turn")
}

/// Creates references outside any actor: in `main`, in tests and in gateways.
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

    /// Binds a reference, such as a decoded one, so that it works outside turns.
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

//! The interfaces that references and turns need from the process that runs them.
//!
//! ```text
//!  Ref<A> ── resolves once ──▶ Invoke<A> ── the actor's cell on this node ──▶ state, mailbox, scheduler
//!    │                            │
//!    └── type unknown here ───────┴── not active here ──▶ Host::send (encoded, to another node)
//! ```

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActorId, CallError, CallId, Caller, Message, Method, NodeId, Outcome, TenantId, Time};

use crate::Actor;
use crate::instance::Instance;
use crate::persist::SaveDone;
use crate::reminder::{ReminderDone, ReminderRequest};
use crate::reply::ReplySender;
use crate::scope::Scope;
use crate::shared_instance::SharedInstance;
use crate::turn::Turn;

/// A process in which references work: a node that hosts actors, or a client.
pub trait Host: Send + Sync + 'static {
    /// The node id of this process.
    fn node(&self) -> NodeId;

    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// Allocates the id of a new call.
    fn next_call(&self) -> CallId;

    /// The local cell of an actor, as an `Arc<dyn Invoke<A>>` for the type that the id names; `None` if the type is not
    /// registered in this process.
    fn resolve(&self, actor: &ActorId) -> Option<Box<dyn Any>>;

    /// Sends a message to its target's node. Shared, because the layers below keep it until its outcome is known.
    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>);

    /// Whether the host enforces the deadlines of calls that were [sent](Host::send), so that callers need no timer.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Abandons a call that was [sent](Host::send): its outcome is discarded. It may still run.
    fn give_up(&self, call: CallId);

    /// Sends the outcome of a call that came from another process.
    fn reply(&self, call: CallId, outcome: Outcome);

    /// Schedules a single wake-up.
    fn wake_at(&self, at: Time, waker: Waker) -> WakeId;

    /// Cancels a wake-up. A no-op if it has already fired.
    fn cancel_wake(&self, wake: WakeId);

    /// The timeout of a call or tell that has to wait and has no deadline of its own.
    fn default_deadline(&self) -> Option<Duration>;

    /// The tenant of calls made outside any turn.
    fn tenant(&self) -> TenantId {
        TenantId::default()
    }
}

/// Identifies a wake-up, so that it can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakeId {
    /// The due time.
    pub at: Time,
    /// Distinguishes wake-ups with the same due time.
    pub sequence: u64,
}

/// Type-erased handle of an actor's cell on this node, as used by the actor's own turns. It outlives single
/// activations.
pub trait CellHandle: Send + Sync + 'static {
    /// The actor's id.
    fn id(&self) -> ActorId;

    /// Whether this is the cell of `actor`.
    fn is_of(&self, actor: &ActorId) -> bool;

    /// A waker for the actor's suspended turn.
    fn waker(self: Arc<Self>) -> Waker;

    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// The node of this process.
    fn node(&self) -> NodeId;

    /// The host of this process.
    fn host(&self) -> Arc<dyn Host>;

    /// The display name of the actor, or of one of its functions: `Folder/7`, `open`. Slow: for logs and spans only.
    fn describe(&self, function: Option<Method>) -> String;

    /// Records the measurements of one turn. Returns the sampling weight of the next measured turn (at least 1).
    fn record_turn(&self, turn: &TurnMeasure) -> u16;

    /// Records a call made by a turn. `weight` is the number of calls that this sample stands for.
    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32);

    /// Ends the activation after the current turn, as if it had been idle.
    fn deactivate(&self);

    /// Saves the actor's state; `done` is called once it is durable or the save failed.
    fn save_state(&self, state: Bytes, done: SaveDone);

    /// Sets or deletes a reminder of this actor; `done` is called once that is durable or has failed.
    fn remind(&self, request: ReminderRequest, done: ReminderDone);

    /// Starts a one-shot or periodic timer. It stops when the activation ends.
    fn start_timer(&self, timer: Timer) -> TimerId;

    /// Stops a timer. A tick that is already in the mailbox is still delivered.
    fn stop_timer(&self, timer: TimerId);
}

/// A timer of an activation.
pub struct Timer {
    /// The delay before the first tick.
    pub after: Duration,
    /// The interval between ticks; `None` ticks once.
    pub every: Option<Duration>,
    /// Sends one tick.
    pub tick: Box<dyn Fn() + Send>,
}

/// Identifies a timer of an activation, so that it can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(pub u64);

/// Measurements of one turn.
#[derive(Clone, Debug)]
pub struct TurnMeasure {
    /// The sampling weight: the number of turns that this sample stands for, itself included.
    pub weight: u32,
    /// The time it ran, excluding its inline calls.
    pub busy: Duration,
    /// The time from start to end, including waits.
    pub latency: Duration,
    /// The caller.
    pub caller: Caller,
    /// The caller's node.
    pub from: NodeId,
    /// The function.
    pub method: Method,
    /// The encoded size of the arguments.
    pub bytes: u64,
}

/// An actor's cell on this node, as used by callers.
///
/// [`begin`](Invoke::begin) is the fast path: it returns the instance, and the caller runs the turn inline on its own
/// thread. All other calls are enqueued. The implementation decides between the two; nothing here does.
pub trait Invoke<A: Actor>: CellHandle {
    /// Takes the instance if the turn is to run inline on this thread. `depth` is the nesting depth of inline turns on
    /// this thread.
    fn begin(&self, start: Start, depth: u32) -> Option<Box<Instance<A>>>;

    /// Returns the instance after a turn that requires no save. The result decides whether the reply may be used.
    fn finish(&self, instance: Box<Instance<A>>) -> Finished;

    /// Sends the reply of a finished turn as soon as it may be used: once the state of `unsaved` is saved, or when the
    /// node is no longer fenced.
    fn reply_later(&self, turn: Pin<Box<dyn Turn<A>>>, unsaved: Option<Box<Instance<A>>>);

    /// Counts a turn that panicked. If its state is `lost`, the activation is discarded.
    fn panicked(&self, lost: bool);

    /// Suspends an inline turn. Returns whether its caller has to [resume](Invoke::resume) it: the caller is woken for
    /// that, or when it can take the reply. Otherwise this node's workers resume the turn.
    fn suspend(
        &self,
        turn: Pin<Box<dyn Turn<A>>>,
        scope: Box<Scope>,
        waker: Arc<Waker>,
        caller: (Ticket, &Waker),
    ) -> bool;

    /// Resumes a suspended turn on its caller's thread, at this depth, if the turn was woken. Returns whether it is
    /// suspended again and its caller may have to resume it. Otherwise the reply has arrived or will arrive without the
    /// caller's help. Without `on`, the caller detaches, and workers resume the turn from now on.
    fn resume(&self, ticket: Ticket, on: Option<(u32, &Waker)>) -> bool;

    /// Enqueues a turn in the mailbox, or sends it to the actor's node. If the mailbox is full, `room` is woken once
    /// there is room again.
    fn post(&self, turn: Pin<Box<dyn Turn<A>>>, room: Option<&Waker>) -> Result<(), NotPosted<A>>;

    /// Suspends an inline turn that shares the actor from now on. This node's workers resume it.
    fn suspend_shared(&self, shared: SharedInstance, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>);
}

/// A turn that could not be enqueued, and the reason.
pub type NotPosted<A> = (CallError, Pin<Box<dyn Turn<A>>>);

/// The situation in which a caller asks for the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A call.
    Call,
    /// The same call, after it found the actor busy.
    BusyCall,
    /// A tell, whose sender gains nothing from waiting.
    Tell,
}

/// Identifies the caller of a suspended turn; unique among waiting callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// Whether the reply of an inline turn may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The caller may use the reply.
    Reply,
    /// The node is fenced: the reply must not leave the node yet, but may be used within it.
    Hold,
    /// The activation was revoked while the turn ran: its effects must stay invisible.
    Lost,
}

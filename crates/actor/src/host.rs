//! What references and turns need from the process that runs them.
//!
//! ```text
//!  Ref<A> ── resolves once ──▶ Invoke<A> ── the actor's cell on this node ──▶ state, mailbox, scheduler
//!    │                            │
//!    └── type unknown here ───────┴── not active here ──▶ Host::send (encoded, through the world beyond the node)
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
use crate::turn::{Posted, Turn};

/// A process in which references work: one that runs actors, or only calls them.
pub trait Host: Send + Sync + 'static {
    /// The node or client that this process is.
    fn node(&self) -> NodeId;

    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// The id of a call that is about to be made.
    fn next_call(&self) -> CallId;

    /// The local cell of an actor, as an `Arc<dyn Invoke<A>>` for the type that the id names; `None` when this process
    /// doesn't know the type.
    fn resolve(&self, actor: &ActorId) -> Option<Box<dyn Any>>;

    /// Sends a message to wherever its target is. Shared, because those on its way keep it until they know what became of it.
    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>);

    /// Whether a call that was [sent](Host::send) ends at its deadline by itself, so that its caller need not look at the time.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Nobody waits any longer for the outcome of a call that was [sent](Host::send). It may run all the same.
    fn give_up(&self, call: CallId);

    /// Sends the outcome of a call that came from elsewhere.
    fn reply(&self, call: CallId, outcome: Outcome);

    /// Wakes somebody at a time, once.
    fn wake_at(&self, at: Time, waker: Waker) -> WakeId;

    /// Gives up a wake-up that is not needed any longer. One that has happened is no longer known, which is fine.
    fn cancel_wake(&self, wake: WakeId);

    /// The deadline of a call or tell that has to wait and was given none.
    fn default_deadline(&self) -> Option<Duration>;

    /// The tenant of callers outside any turn.
    fn tenant(&self) -> TenantId {
        TenantId::default()
    }
}

/// Names a wake-up, so that it can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakeId {
    /// When it is due.
    pub at: Time,
    /// Tells it from others that are due at the same time.
    pub sequence: u64,
}

/// An actor's place on this node as its own turns see it, whatever its type. It stays the same while the actor's
/// activations come and go.
pub trait CellHandle: Send + Sync + 'static {
    /// Whose place it is.
    fn id(&self) -> ActorId;

    /// Whether it is the place of this actor.
    fn is_of(&self, actor: &ActorId) -> bool;

    /// Wakes the turn of this actor that waits.
    fn waker(self: Arc<Self>) -> Waker;

    /// The time on this process's clock.
    fn now(&self) -> Time;

    /// The node it is on.
    fn node(&self) -> NodeId;

    /// The process it is in.
    fn host(&self) -> Arc<dyn Host>;

    /// The actor, or one of its functions, as people write it: `Folder/7`, `open`. For logs and spans: it is slow.
    fn describe(&self, function: Option<Method>) -> String;

    /// Takes in what was measured of one turn; says how many turns the next measured one shall stand for (at least 1).
    fn record_turn(&self, turn: &TurnMeasure) -> u16;

    /// Takes in what was measured of one call that a turn made, and how many calls it stands for.
    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32);

    /// Ends the activation after the present turn, as if it had been idle.
    fn deactivate(&self);

    /// Saves the state of the turn that runs; `done` is called when it is durable, or can't be.
    fn save_state(&self, state: Bytes, done: SaveDone);

    /// Sets or forgets a reminder of this actor; `done` is called when that is durable, or can't be.
    fn remind(&self, request: ReminderRequest, done: ReminderDone);

    /// Sends a message to this very actor at a time, or again and again, until its activation ends.
    fn start_timer(&self, timer: Timer) -> TimerId;

    /// Stops a timer. A tick that is already in the mailbox still comes.
    fn stop_timer(&self, timer: TimerId);
}

/// A timer of an activation.
pub struct Timer {
    /// How long until the first tick.
    pub after: Duration,
    /// How long between ticks; `None` ticks once.
    pub every: Option<Duration>,
    /// Sends one tick.
    pub tick: Box<dyn Fn() + Send>,
}

/// Names a timer of an activation, so that it can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(pub u64);

/// What was measured of one turn.
#[derive(Clone, Debug)]
pub struct TurnMeasure {
    /// How many turns it stands for: itself and those that were not measured.
    pub weight: u32,
    /// The time it ran, without the inline calls it made.
    pub busy: Duration,
    /// The time from its beginning to its end, waits included.
    pub latency: Duration,
    /// Who called.
    pub caller: Caller,
    /// Where the caller was.
    pub from: NodeId,
    /// The function.
    pub method: Method,
    /// The encoded size of the arguments.
    pub bytes: u64,
}

/// An actor's place on this node as callers see it.
///
/// [`begin`](Invoke::begin) is the fast way: it hands out the actor if it is idle, and the caller runs the turn on its own
/// thread and gives the actor back. Everything else queues.
pub trait Invoke<A: Actor>: CellHandle {
    /// Takes the actor for a turn on this thread, if it is idle, or may be activated here at once. `depth` counts the turns
    /// that this thread is inside of.
    fn begin(&self, depth: u32) -> Option<Box<Instance<A>>>;

    /// The same for an actor that is not idle but may be in a moment, because one of its turns runs right now: most turns are
    /// over before a call could be queued.
    fn try_begin_spinning(&self, depth: u32) -> Option<Box<Instance<A>>>;

    /// Takes the actor for what is told to it, if it is idle and its turns are so short that to run one on this thread takes
    /// less time than to hand it over.
    fn try_begin_cheap(&self, depth: u32) -> Option<Box<Instance<A>>>;

    /// Gives the actor back after a turn that changed nothing that has to be saved; says what becomes of the reply.
    fn finish(&self, instance: Box<Instance<A>>) -> Finished;

    /// Gives the actor back after a turn whose effect has to be saved before its caller may know of it.
    fn finish_saved(&self, instance: Box<Instance<A>>, turn: Pin<Box<dyn Turn<A>>>);

    /// Whether the caller of a turn that waits shall go on with it.
    fn caller_resumes(&self) -> bool;

    /// The turn waits for something, and so does its caller. With a `caller` that one is woken when it shall
    /// [go on](Invoke::resume) with it or look for its reply; else this node's workers go on with it.
    fn suspend(
        &self,
        turn: Pin<Box<dyn Turn<A>>>,
        scope: Box<Scope>,
        waker: Arc<Waker>,
        caller: Option<(Ticket, &Waker)>,
    );

    /// The caller of a turn that waits goes on with it, if it was woken. Says whether it waits and its caller may have to go on
    /// with it again; if not, its reply has come or will come without that.
    fn resume(&self, depth: u32, caller: (Ticket, &Waker)) -> bool;

    /// The caller of a turn that waits does not go on with it any more.
    fn part(&self, ticket: Ticket);

    /// Counts a turn that panicked.
    fn count_panic(&self);

    /// The turn panicked and took the state with it.
    fn lost(&self);

    /// Keeps a finished turn until its reply may leave.
    fn hold_reply(&self, turn: Pin<Box<dyn Turn<A>>>);

    /// Puts a call into the mailbox, or sends it to wherever the actor is. When the mailbox is full and `room` is given, that
    /// is woken when there is room again. On failure the call is as it was.
    fn post(&self, call: &mut dyn Posted<A>, room: Option<&Waker>) -> Result<(), CallError>;

    /// Whether a call may run right here, on a thread that is inside a turn of this very actor which shares it. `sender` is
    /// the actor that calls: what it sent before must not be overtaken.
    fn join(&self, depth: u32, sender: &ActorId) -> Join;

    /// A turn that shares the actor waits for something: from here on it is polled by this node's workers.
    fn suspend_shared(&self, shared: SharedInstance, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>, share: Share);

    /// A turn that shares the actor is over. With the turn its reply is sent when what it may have seen is saved; else the
    /// outcome says what becomes of it. Only for actors that others still have a share of, or may.
    fn finish_shared(&self, shared: SharedInstance, over: Option<Pin<Box<dyn Turn<A>>>>, share: Share) -> Finished;
}

/// Names the caller of a turn that waits: no two that wait have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// How a turn that ran on its caller's thread came to share its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// It took the actor when that was idle. While it is polled, no other thread polls a turn of the actor.
    First,
    /// It began within the poll of another turn that shares the actor.
    Joined,
}

/// Whether a call may run beside another turn of its actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Right here.
    Here,
    /// Through the mailbox, because this thread has run too much inline already.
    Queued,
    /// It can't.
    Refused(CallError),
}

/// What becomes of the reply of a turn that ran on its caller's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The caller has it.
    Reply,
    /// No reply may leave the node at present; within the node it may be used.
    Hold,
    /// The activation had lost its right to be while the turn ran: nobody may see what it did.
    Lost,
    /// Another turn that shared the actor panicked and may have left it half changed.
    Broken,
}

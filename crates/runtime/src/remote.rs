//! The runtime's interface to the rest of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::{ReminderDone, ReminderError, ReminderRequest, ReplySender, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, Outcome, Rejected};
use parking_lot::Mutex;

/// An inbound message, with the reply path to a caller in this process.
#[derive(Debug)]
pub struct InboundMessage {
    /// The message.
    pub message: Arc<Message>,
    /// The caller's reply cell. Without one, the outcome of a call is sent through [`Remote::reply`].
    pub reply: Option<ReplySender>,
}

impl From<Arc<Message>> for InboundMessage {
    fn from(message: Arc<Message>) -> Self {
        Self { message, reply: None }
    }
}

/// The state that an actor starts from after a move or a passivation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateImage {
    /// The state, encoded by field name.
    pub state: Bytes,
    /// Whether it comes from an activation on another node, so that the after-move hook runs.
    pub moved: bool,
}

/// Permission to activate an actor here immediately.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The epoch of the activation.
    pub epoch: ActivationEpoch,
    /// The state to start from; without it the actor starts from its default state.
    pub image: Option<StateImage>,
}

/// The runtime's interface to the rest of the cluster.
///
/// The runtime calls these methods without holding any of its locks, so they may call back into it. They must not
/// block.
pub trait Remote: Send + Sync + 'static {
    /// Returns a grant if an inactive actor may be activated here immediately, decided locally.
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant>;

    /// Sends a message whose target is not active here. The reply cell is completed later with the outcome.
    ///
    /// Messages of one sender to one actor arrive in order, and that order must be preserved.
    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>);

    /// Whether calls given to [`send`](Remote::send) are completed by their deadline. If not, callers watch the
    /// deadline themselves.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Abandons a call given to [`send`](Remote::send): no caller waits for its outcome, so its reply cell may be
    /// dropped. The call may still run.
    fn give_up(&self, call: CallId) {
        let _ = call;
    }

    /// Sends the outcome of a call that [`Runtime::deliver`](crate::Runtime::deliver) accepted without a reply cell.
    fn reply(&self, call: CallId, outcome: Outcome);

    /// Saves the state of a persistent actor. The reply of the call that changed it is sent after `done(Ok(()))`.
    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone);

    /// Sets or removes a reminder of an actor. Without a durable store there are none.
    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        let _ = (actor, request);
        done(Err(ReminderError::Unavailable(
            "reminders need a state store, and this runtime has none".into(),
        )));
    }

    /// CPU time that this process has spent on busy-polling so far. It does not count as used, because any other work
    /// would have had precedence.
    fn busy_poll_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The last known node of an actor that is not active here.
    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        let _ = actor;
        None
    }

    /// Notifies that an activation ended by itself: it was idle, requested it, panicked, or could not be saved.
    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch);
}

/// A stand-alone runtime: every actor is activated here immediately, and saved states stay in memory while the process
/// lives.
#[derive(Debug, Default)]
pub struct LocalOnly {
    saved: Mutex<BTreeMap<ActorId, Bytes>>,
}

impl Remote for LocalOnly {
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant> {
        let saved = self.saved.lock().get(actor).cloned();
        Some(Grant {
            epoch: ActivationEpoch::default(),
            image: saved.map(|state| StateImage { state, moved: false }),
        })
    }

    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>) {
        // Only messages for unregistered types arrive here.
        if let Some(reply) = reply {
            let kind = format!("#{:08x}", message.target.kind.number());
            reply.complete(Err(CallError::Rejected(Rejected::UnknownType(kind))));
        }
    }

    fn reply(&self, _call: CallId, _outcome: Outcome) {}

    fn save(&self, actor: &ActorId, _epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        self.saved.lock().insert(actor.clone(), state);
        done(Ok(()));
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

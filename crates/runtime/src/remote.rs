//! What a node's runtime needs from the world beyond it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::{ReminderDone, ReminderError, ReminderRequest, ReplySender, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, Outcome, Rejected};
use parking_lot::Mutex;

/// A message with the way back to a caller in this process.
#[derive(Debug)]
pub struct InboundMessage {
    /// The message.
    pub message: Arc<Message>,
    /// The caller's slot. Without one, the outcome of a call leaves through [`Remote::reply`].
    pub reply: Option<ReplySender>,
}

impl From<Arc<Message>> for InboundMessage {
    fn from(message: Arc<Message>) -> Self {
        Self { message, reply: None }
    }
}

/// All that an actor takes along when it moves or starts from what was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateImage {
    /// The state, encoded by field name.
    pub state: Bytes,
    /// Whether it comes from an activation on another node, so that the hook after a move runs.
    pub moved: bool,
}

/// Leave to activate an actor here at once.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The epoch of the activation.
    pub epoch: ActivationEpoch,
    /// What to start from; without it the actor starts from its default state.
    pub image: Option<StateImage>,
}

/// What a node's runtime needs from the world beyond it.
///
/// The runtime calls these without holding any of its locks, so they may call back into it; they must not block.
pub trait Remote: Send + Sync + 'static {
    /// Asks whether an actor that is not active here may be activated at once, without asking anyone.
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant>;

    /// Takes a message whose target is not active here. The reply slot is completed later with the outcome.
    ///
    /// Messages of one sender to one actor come in order: keep it.
    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>);

    /// Whether what was [sent](Remote::send) is completed at its deadline at the latest. If not, callers look at the time
    /// themselves.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Nobody waits any longer for the outcome of a call that was [sent](Remote::send): its slot may be dropped. It may run all
    /// the same.
    fn give_up(&self, call: CallId) {
        let _ = call;
    }

    /// A call that came in through [`Runtime::deliver`](crate::Runtime::deliver) without a slot has ended.
    fn reply(&self, call: CallId, outcome: Outcome);

    /// Saves the state of a persistent actor. The reply of the call that changed it leaves after `done(Ok(()))`.
    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone);

    /// Sets or forgets a reminder of an actor. Where nothing outlives the process, there are none.
    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        let _ = (actor, request);
        done(Err(ReminderError::Unavailable("this runtime has no store".into())));
    }

    /// The processor's time that this process has spent on waiting for mail so far, and that could have been anybody's: it does not
    /// count as used.
    fn busy_poll_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Where an actor that is not active here was when last heard of.
    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        let _ = actor;
        None
    }

    /// An activation has ended by itself: it was idle, asked for it, panicked, or could not be saved.
    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch);
}

/// The world of a runtime that is alone: every actor is activated here at once, and what persistent actors save stays in
/// memory for as long as the process lives.
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
        // Only a type that is not registered comes here.
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

//! The model of a node's runtime: activations with mailboxes that run one turn at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, Message, Time};
use serde::{Deserialize, Serialize};

/// State of a simulated actor, which is moved with it and saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The incarnation, which increases when the actor starts without a planned move.
    pub(crate) incarnation: u64,
    /// The number of messages run before this incarnation: none, or as many as were saved.
    pub(crate) initial_effects: u64,
    /// The number of messages run.
    pub(crate) effects: u64,
    /// The incarnation as a sender, within which order is promised; a crash of a move's source starts a new one.
    pub(crate) sender: u64,
}

impl State {
    pub(crate) fn encode(&self) -> Bytes {
        postcard::to_stdvec(self).expect("numbers can be encoded").into()
    }

    pub(crate) fn decode(image: &Bytes) -> Self {
        postcard::from_bytes(image).expect("the image was encoded here")
    }
}

/// A queued message, and whether a caller on the same node enqueued it directly, without the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) message: Arc<Message>,
    pub(crate) direct: bool,
}

/// The phase of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Loading, or loaded and accepting messages from the protocol only.
    Closed,
    /// Running turns.
    Open,
    /// Accepting messages without starting turns.
    Frozen,
}

/// An actor in memory.
#[derive(Debug)]
pub(crate) struct Activation {
    pub(crate) epoch: ActivationEpoch,
    pub(crate) status: Status,
    pub(crate) state: State,
    pub(crate) mailbox: VecDeque<Envelope>,
    /// The turn that runs, or waits for its effect to be saved.
    pub(crate) turn: Option<Envelope>,
    /// Freeze at the end of the turn.
    pub(crate) freeze_wanted: bool,
}

/// Checks before a turn that a planted bug skips.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SkippedChecks {
    /// The check of the lease.
    pub(crate) lease: bool,
    /// The check that no other turn is running.
    pub(crate) overlap: bool,
}

/// The activations of one node.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) activations: BTreeMap<ActorId, Activation>,
    /// The fence: from this time of the node's clock on, no turn starts and nothing is saved.
    pub(crate) may_act_until: Time,
}

impl Host {
    /// Starts an activation.
    pub(crate) fn activate(&mut self, actor: ActorId, epoch: ActivationEpoch, state: State) {
        let activation = Activation {
            epoch,
            status: Status::Closed,
            state,
            mailbox: VecDeque::new(),
            turn: None,
            freeze_wanted: false,
        };
        let before = self.activations.insert(actor, activation);
        assert!(before.is_none(), "an active actor must not be activated again");
    }

    /// The activation of this epoch.
    pub(crate) fn get(&mut self, actor: &ActorId, epoch: ActivationEpoch) -> Option<&mut Activation> {
        self.activations
            .get_mut(actor)
            .filter(|activation| activation.epoch == epoch)
    }

    /// Whether a caller on this node may enqueue directly into the actor's mailbox.
    pub(crate) fn is_open(&self, actor: &ActorId) -> bool {
        self.activations
            .get(actor)
            .is_some_and(|activation| matches!(activation.status, Status::Open | Status::Frozen))
    }

    /// Starts the next turn that may run at this time, if any.
    pub(crate) fn start_turn(
        &mut self,
        local: Time,
        actor: &ActorId,
        skipped: SkippedChecks,
    ) -> Option<(ActivationEpoch, Envelope, State)> {
        if local >= self.may_act_until && !skipped.lease {
            return None;
        }
        let activation = self.activations.get_mut(actor)?;
        let is_busy = activation.turn.is_some() && !skipped.overlap;
        if activation.status != Status::Open || is_busy || activation.freeze_wanted {
            return None;
        }
        let envelope = activation.mailbox.pop_front()?;
        activation.turn = Some(envelope.clone());
        activation.state.effects += 1;
        Some((activation.epoch, envelope, activation.state))
    }
}

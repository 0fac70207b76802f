//! The model of a node's runtime: activations with mailboxes that run one turn at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, Message, Time};
use serde::{Deserialize, Serialize};

/// What a simulated actor keeps, and what therefore moves with it and is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Counts the times that the actor began anew; a planned move keeps it.
    pub(crate) life: u64,
    /// How many messages had been run when this life began: none, or as many as were saved.
    pub(crate) born_with: u64,
    /// How many messages it has run.
    pub(crate) effects: u64,
    /// Counts what order is promised within: it also changes if the node that the actor came from has crashed meanwhile.
    pub(crate) sender: u64,
}

impl State {
    pub(crate) fn encode(&self) -> Bytes {
        postcard::to_stdvec(self).expect("numbers can be encoded").into()
    }

    pub(crate) fn decode(image: &Bytes) -> Self {
        postcard::from_bytes(image).expect("the image is as it was encoded")
    }
}

/// Mail, and whether it came from a caller on the same node without the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    pub(crate) message: Arc<Message>,
    pub(crate) direct: bool,
}

/// How far an activation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is being loaded, or is there and takes mail from the protocol only.
    Closed,
    /// It runs.
    Open,
    /// It takes mail and starts no turn.
    Frozen,
}

/// One actor in memory.
#[derive(Debug)]
pub(crate) struct Activation {
    pub(crate) epoch: ActivationEpoch,
    pub(crate) status: Status,
    pub(crate) state: State,
    pub(crate) mailbox: VecDeque<Mail>,
    /// The turn that runs, or whose effect is being saved.
    pub(crate) turn: Option<Mail>,
    /// It shall freeze at the end of the turn.
    pub(crate) freeze_wanted: bool,
}

/// What a planted bug does not look at before a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lax {
    /// Whether the lease is still good.
    pub(crate) lease: bool,
    /// Whether another turn is running.
    pub(crate) overlap: bool,
}

/// One node's activations.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) activations: BTreeMap<ActorId, Activation>,
    /// From then on no turn starts and nothing is saved, on the node's clock.
    pub(crate) may_act_until: Time,
}

impl Host {
    /// Begins an activation.
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
        assert!(before.is_none(), "an actor is activated where it already is");
    }

    /// The activation, if it is this one.
    pub(crate) fn get(&mut self, actor: &ActorId, epoch: ActivationEpoch) -> Option<&mut Activation> {
        self.activations
            .get_mut(actor)
            .filter(|activation| activation.epoch == epoch)
    }

    /// Whether a caller on this node may put mail straight into the actor's mailbox.
    pub(crate) fn is_open(&self, actor: &ActorId) -> bool {
        self.activations
            .get(actor)
            .is_some_and(|activation| matches!(activation.status, Status::Open | Status::Frozen))
    }

    /// The next message that may run at this time, if any; it is the actor's turn then.
    pub(crate) fn start_turn(
        &mut self,
        local: Time,
        actor: &ActorId,
        lax: Lax,
    ) -> Option<(ActivationEpoch, Mail, State)> {
        if local >= self.may_act_until && !lax.lease {
            return None;
        }
        let activation = self.activations.get_mut(actor)?;
        let is_busy = activation.turn.is_some() && !lax.overlap;
        if activation.status != Status::Open || is_busy || activation.freeze_wanted {
            return None;
        }
        let mail = activation.mailbox.pop_front()?;
        activation.turn = Some(mail.clone());
        activation.state.effects += 1;
        Some((activation.epoch, mail, activation.state))
    }
}

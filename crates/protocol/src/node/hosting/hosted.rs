//! Per-actor state of a node: for an actor that is, was, or will be active on it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use elastin_types::{ActivationEpoch, Message, NodeId, Time};

use crate::{MoveError, MoveId};

/// Number of the first attempt to move an activation that itself arrived by a move; otherwise attempts start at 0. So
/// the directory can distinguish an activation that arrived by a move from a newly granted one.
pub(crate) const FIRST_ATTEMPT_AFTER_MOVE: u32 = 1;

/// The held messages of a running actor.
const NOTHING: &VecDeque<Held> = &VecDeque::new();

/// One actor on this node.
///
/// A running actor needs only its epoch and attempt count, in 16 bytes: a node hosts millions of them.
#[derive(Debug)]
pub(crate) struct Hosted(State);

#[derive(Debug)]
enum State {
    /// Active, with no messages held.
    Runs { epoch: ActivationEpoch, attempts: u32 },
    /// Any other state.
    Other(Box<Other>),
}

/// State of an actor that is not simply running.
#[derive(Debug)]
struct Other {
    epoch: ActivationEpoch,
    attempts: u32,
    phase: Phase,
    held: VecDeque<Held>,
}

impl Hosted {
    /// Creates an actor without move attempts or held messages.
    pub(crate) fn new(epoch: ActivationEpoch, phase: Phase) -> Self {
        let mut hosted = Self(State::Runs { epoch, attempts: 0 });
        hosted.set_phase(phase);
        hosted
    }

    /// Epoch of the activation: the one here, the one expected here, or the one that moved away.
    pub(crate) fn epoch(&self) -> ActivationEpoch {
        match &self.0 {
            State::Runs { epoch, .. } => *epoch,
            State::Other(other) => other.epoch,
        }
    }

    pub(crate) fn set_epoch(&mut self, new: ActivationEpoch) {
        match &mut self.0 {
            State::Runs { epoch, .. } => *epoch = new,
            State::Other(other) => other.epoch = new,
        }
    }

    /// Attempts to move this activation so far; also the number of the next one.
    pub(crate) fn attempts(&self) -> u32 {
        match &self.0 {
            State::Runs { attempts, .. } => *attempts,
            State::Other(other) => other.attempts,
        }
    }

    pub(crate) fn set_attempts(&mut self, new: u32) {
        match &mut self.0 {
            State::Runs { attempts, .. } => *attempts = new,
            State::Other(other) => other.attempts = new,
        }
    }

    /// The actor's phase.
    pub(crate) fn phase(&self) -> &Phase {
        match &self.0 {
            State::Runs { .. } => &Phase::Active,
            State::Other(other) => &other.phase,
        }
    }

    /// Mutable access to the phase's data; `None` if the actor is simply running.
    fn phase_mut(&mut self) -> Option<&mut Phase> {
        match &mut self.0 {
            State::Runs { .. } => None,
            State::Other(other) => Some(&mut other.phase),
        }
    }

    /// The move away from this node, while it is undecided.
    pub(crate) fn moving_out(&mut self) -> Option<&mut MoveOut> {
        match self.phase_mut()? {
            Phase::MovingOut(out) => Some(out),
            _ => None,
        }
    }

    /// The move to this node.
    pub(crate) fn moving_in(&mut self) -> Option<&mut MoveIn> {
        match self.phase_mut()? {
            Phase::MovingIn(incoming) => Some(incoming),
            _ => None,
        }
    }

    /// Changes the phase and returns the previous one.
    pub(super) fn set_phase(&mut self, phase: Phase) -> Phase {
        let other = self.other();
        let before = std::mem::replace(&mut other.phase, phase);
        if matches!(other.phase, Phase::Active) && other.held.is_empty() {
            let (epoch, attempts) = (other.epoch, other.attempts);
            self.0 = State::Runs { epoch, attempts };
        }
        before
    }

    /// Messages held for the actor, in order. Bounded by [`Limits::held_per_actor`](crate::Limits::held_per_actor).
    pub(crate) fn held(&self) -> impl ExactSizeIterator<Item = &Held> {
        match &self.0 {
            State::Runs { .. } => NOTHING.iter(),
            State::Other(other) => other.held.iter(),
        }
    }

    /// The tombstone of an actor that moved away.
    pub(crate) fn departed(&mut self) -> Option<&mut Departed> {
        match self.phase_mut()? {
            Phase::Departed(departed) => Some(departed),
            _ => None,
        }
    }

    /// Mutable access to the held messages.
    pub(crate) fn held_mut(&mut self) -> &mut VecDeque<Held> {
        &mut self.other().held
    }

    /// Takes the held messages.
    pub(crate) fn take_held(&mut self) -> VecDeque<Held> {
        match &mut self.0 {
            State::Runs { .. } => VecDeque::new(),
            State::Other(other) => std::mem::take(&mut other.held),
        }
    }

    fn other(&mut self) -> &mut Other {
        if let State::Runs { epoch, attempts } = self.0 {
            let (phase, held) = (Phase::Active, VecDeque::new());
            self.0 = State::Other(Box::new(Other {
                epoch,
                attempts,
                phase,
                held,
            }));
        }
        match &mut self.0 {
            State::Other(other) => other,
            State::Runs { .. } => unreachable!("converted to `Other` above"),
        }
    }
}

/// A message held for an actor.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) message: Arc<Message>,
    /// Whether its origin awaits a `Landed` report, because the message came through the directory or was kept.
    pub(crate) passed: bool,
}

/// Phase of an actor on this node. Large variants are boxed.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Messages arrived for an activation whose grant is still in flight.
    Expected,
    /// The runtime is loading the actor.
    Activating,
    /// The actor is loaded and accepts messages, but does not run yet. It opens once earlier messages of local callers
    /// have arrived, because from then on those callers bypass the protocol.
    Closed,
    /// The actor runs.
    Active,
    /// The actor runs or is frozen, and is to move to another node.
    MovingOut(Box<MoveOut>),
    /// The move is decided and the runtime is releasing the activation.
    Releasing(Box<Releasing>),
    /// The actor has moved to another node (tombstone).
    Departed(Box<Departed>),
    /// The actor may move here.
    MovingIn(Box<MoveIn>),
    /// The activation is over, but the directory has not confirmed it yet.
    Leaving,
}

/// An undecided move away from this node.
#[derive(Debug)]
pub(crate) struct MoveOut {
    pub(crate) id: MoveId,
    pub(crate) to: NodeId,
    pub(crate) attempt: u32,
    pub(crate) deadline: Time,
    pub(crate) step: OutStep,
    /// The group of this move, until the whole group is frozen.
    pub(crate) group: Option<MoveId>,
    /// Number of starts so far, for a queued move that is retried while its target is overloaded.
    pub(crate) tries: Option<u32>,
    /// The size of the image, once known.
    pub(crate) image_bytes: usize,
    /// The next chunk of the image is not sent before this time, so that calls get through.
    pub(crate) pauses_until: Time,
}

/// Progress of a move away from this node.
#[derive(Debug)]
pub(crate) enum OutStep {
    /// The target has been asked.
    Offered,
    /// The target has accepted; other members of the group are pending.
    Taken,
    /// The runtime has been asked to freeze the actor. If an error is set, the move is aborted once the runtime
    /// answers.
    Freezing(Option<MoveError>),
    /// The actor is frozen; other members of the group are pending.
    Frozen(Bytes),
    /// The image is in flight.
    Staging {
        image: Bytes,
        /// Frame numbers of the chunks in flight, which are bounded.
        in_flight: VecDeque<u64>,
    },
    /// The target has the whole image and asks the directory to commit.
    Deciding,
    /// This node has asked the directory to abort the move, for this reason, and awaits the answer.
    Aborting(MoveError),
}

/// A decided move away from this node.
#[derive(Debug)]
pub(crate) struct Releasing {
    /// The new host.
    pub(crate) to: NodeId,
    /// The new activation.
    pub(crate) to_epoch: ActivationEpoch,
    /// The attempt that succeeded.
    pub(crate) attempt: u32,
    /// Whether the activation that the move led to is gone already, and the actor was activated anew.
    pub(crate) is_lost: bool,
}

/// Tombstone of an actor that moved away.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) to: NodeId,
    pub(crate) to_epoch: ActivationEpoch,
    /// Expiry of the tombstone, set when the new host has everything. Until then this node must report the move to a
    /// new owner of the slot.
    pub(crate) until: Option<Time>,
}

/// A move to this node.
#[derive(Debug)]
pub(crate) struct MoveIn {
    pub(crate) from: NodeId,
    pub(crate) attempt: u32,
    pub(crate) step: InStep,
    /// The part of the image received so far.
    pub(crate) image: BytesMut,
    /// The part of the queue received so far.
    pub(crate) queue: VecDeque<Arc<Message>>,
    /// Whether the whole queue has been received.
    pub(crate) released: bool,
}

/// Progress of a move to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InStep {
    /// Messages that local callers sent to the actor must settle before the offer is accepted.
    Settling,
    /// The offer is accepted; the image is expected.
    Accepted,
    /// The image is complete; the directory has been asked to commit.
    Committing,
    /// The directory has committed the move to this activation; the queue is expected.
    Committed(ActivationEpoch),
}

impl Phase {
    /// Whether an activation exists in the runtime and accepts messages.
    pub(crate) fn takes_mail(&self) -> bool {
        matches!(self, Phase::Closed | Phase::Active | Phase::MovingOut(_))
    }

    /// Whether messages of local callers wait here for the actor, instead of following it to its present host.
    pub(crate) fn holds_own(&self) -> bool {
        matches!(self, Phase::MovingIn(incoming) if incoming.step != InStep::Settling)
    }

    /// Whether held messages do not have a final place in the actor's queue yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        match self {
            Phase::Expected | Phase::Releasing(_) | Phase::Leaving => true,
            // Until the whole queue is here, a sender that has moved meanwhile may still get a message in ahead.
            Phase::MovingIn(incoming) => !incoming.released,
            Phase::Activating | Phase::Closed | Phase::Active | Phase::MovingOut(_) | Phase::Departed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_actor_takes_16_bytes() {
        assert_eq!(size_of::<Hosted>(), 16);
    }

    #[test]
    fn compact_and_boxed_states_agree() {
        let epoch = ActivationEpoch::default().next();
        let mut hosted = Hosted::new(epoch, Phase::Activating);
        hosted.set_attempts(3);
        assert!(matches!(hosted.set_phase(Phase::Active), Phase::Activating));
        assert!(matches!(hosted.0, State::Runs { .. }));
        assert_eq!((hosted.epoch(), hosted.attempts()), (epoch, 3));
        assert!(matches!(hosted.phase(), Phase::Active));
        assert!(hosted.phase_mut().is_none());
        assert!(matches!(hosted.set_phase(Phase::Leaving), Phase::Active));
        assert_eq!((hosted.epoch(), hosted.attempts()), (epoch, 3));
        assert!(matches!(hosted.phase_mut(), Some(Phase::Leaving)));
    }
}

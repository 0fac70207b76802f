//! What a node knows of an actor that is, was, or will be active on it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use elastin_types::{ActivationEpoch, Message, NodeId, Time};

use crate::{MoveError, MoveId};

/// The number of the first attempt to move an activation that itself came by a move; of others it is 0. So the directory
/// can tell an activation that a move has led to from one that was granted anew and has never been moved.
pub(crate) const FIRST_ATTEMPT_AFTER_MOVE: u32 = 1;

/// What waits for an actor that just runs.
const NOTHING: &VecDeque<Held> = &VecDeque::new();

/// One actor on this node.
///
/// Of one that just runs nothing but the activation is kept, in 16 bytes: a node hosts millions of them.
#[derive(Debug)]
pub(crate) struct Hosted(State);

#[derive(Debug)]
enum State {
    /// It is active, and nothing waits.
    Runs { epoch: ActivationEpoch, attempts: u32 },
    /// Anything else.
    Other(Box<Other>),
}

/// An actor that does not just run.
#[derive(Debug)]
struct Other {
    epoch: ActivationEpoch,
    attempts: u32,
    phase: Phase,
    held: VecDeque<Held>,
}

impl Hosted {
    /// An actor of which no attempt to move it is known, and for which nothing waits.
    pub(crate) fn new(epoch: ActivationEpoch, phase: Phase) -> Self {
        let mut hosted = Self(State::Runs { epoch, attempts: 0 });
        hosted.set_phase(phase);
        hosted
    }

    /// The activation: here, or the one that is expected here, or where it went.
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

    /// Attempts to move this activation; the next one gets this number.
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

    /// What is going on.
    pub(crate) fn phase(&self) -> &Phase {
        match &self.0 {
            State::Runs { .. } => &Phase::Active,
            State::Other(other) => &other.phase,
        }
    }

    /// What is going on, to be changed; `None` if it just runs. To another phase it comes by [`Self::set_phase`].
    pub(crate) fn phase_mut(&mut self) -> Option<&mut Phase> {
        match &mut self.0 {
            State::Runs { .. } => None,
            State::Other(other) => Some(&mut other.phase),
        }
    }

    /// Changes the phase, and gives the one before.
    pub(crate) fn set_phase(&mut self, phase: Phase) -> Phase {
        let other = self.other();
        let before = std::mem::replace(&mut other.phase, phase);
        if matches!(other.phase, Phase::Active) && other.held.is_empty() {
            let (epoch, attempts) = (other.epoch, other.attempts);
            self.0 = State::Runs { epoch, attempts };
        }
        before
    }

    /// Messages that wait here, in order. Bounded by [`Limits::held_per_actor`](crate::Limits::held_per_actor).
    pub(crate) fn held(&self) -> impl ExactSizeIterator<Item = &Held> {
        match &self.0 {
            State::Runs { .. } => NOTHING.iter(),
            State::Other(other) => other.held.iter(),
        }
    }

    /// The same, to be changed.
    pub(crate) fn held_mut(&mut self) -> &mut VecDeque<Held> {
        &mut self.other().held
    }

    /// Takes what waits here.
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
            State::Runs { .. } => unreachable!("it was made something else"),
        }
    }
}

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) message: Arc<Message>,
    /// Its origin waits to hear that it has landed: it came through the directory, or was kept.
    pub(crate) passed: bool,
}

/// What is going on with an actor on this node. What is large is boxed.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Messages came for an activation whose grant is still on the way.
    Expected,
    /// The runtime is bringing it into memory.
    Activating,
    /// It is in memory, and takes mail; it may run as soon as what callers here sent to it before has arrived, because from
    /// then on they reach it without the protocol.
    Closed,
    /// It runs.
    Active,
    /// It runs, or is frozen, and shall go elsewhere.
    MovingOut(Box<MoveOut>),
    /// The move is decided. The runtime is giving up the activation.
    Releasing(Box<Releasing>),
    /// It is elsewhere.
    Departed(Box<Departed>),
    /// It may come here.
    MovingIn(Box<MoveIn>),
    /// The activation is over; the directory does not know yet.
    Leaving,
}

/// A move away from this node, before it is decided.
#[derive(Debug)]
pub(crate) struct MoveOut {
    pub(crate) id: MoveId,
    pub(crate) to: NodeId,
    pub(crate) attempt: u32,
    pub(crate) deadline: Time,
    pub(crate) step: OutStep,
    /// The group that it is one of, until all of the group are frozen.
    pub(crate) group: Option<MoveId>,
    /// How often it was begun, if it is one of many and is begun again when the target has too much to do.
    pub(crate) tries: Option<u32>,
    /// The size of the state, once it is known.
    pub(crate) image_bytes: usize,
    /// Before this the next part of the state does not leave, so that calls get through.
    pub(crate) pauses_until: Time,
}

/// How far a move away from this node is.
#[derive(Debug)]
pub(crate) enum OutStep {
    /// The target was asked.
    Offered,
    /// The target takes it, and others of its group are waited for.
    Taken,
    /// The runtime was asked to freeze it. If the reason is set, the move is off as soon as it answers.
    Freezing(Option<MoveError>),
    /// It is frozen, and others of its group are waited for.
    Frozen(Bytes),
    /// The image is on its way.
    Staging {
        image: Bytes,
        /// The numbers of the chunks on their way, so that only a few are at once.
        under_way: VecDeque<u64>,
    },
    /// The target has all of it and asks the directory.
    Deciding,
    /// This node has asked the directory to call it off, for this reason, and must wait for the answer.
    Aborting(MoveError),
}

/// A decided move away from this node.
#[derive(Debug)]
pub(crate) struct Releasing {
    /// The new host.
    pub(crate) to: NodeId,
    /// The new activation.
    pub(crate) to_epoch: ActivationEpoch,
    /// Which attempt it was.
    pub(crate) attempt: u32,
    /// The activation that the move led to is gone already, and the actor began anew where it is now.
    pub(crate) is_lost: bool,
}

/// Where an actor went.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) to: NodeId,
    pub(crate) to_epoch: ActivationEpoch,
    /// Set when the new host has everything: how long this is remembered then. Before, this node must tell a new owner of
    /// the slot of the move.
    pub(crate) until: Option<Time>,
}

/// A move to this node.
#[derive(Debug)]
pub(crate) struct MoveIn {
    pub(crate) from: NodeId,
    pub(crate) attempt: u32,
    pub(crate) step: InStep,
    /// The state so far.
    pub(crate) image: BytesMut,
    /// The queue so far.
    pub(crate) queue: VecDeque<Arc<Message>>,
    /// Whether the whole queue is here.
    pub(crate) released: bool,
}

/// How far a move to this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InStep {
    /// What callers on this node have sent to the actor must settle before the offer is taken.
    Settling,
    /// The offer is taken; the image is to come.
    Accepted,
    /// The image is here; the directory was asked to decide.
    Committing,
    /// The directory has decided for this activation here; the queue is to come.
    Committed(ActivationEpoch),
}

impl Phase {
    /// Whether an activation exists in the runtime and takes mail.
    pub(crate) fn takes_mail(&self) -> bool {
        matches!(self, Phase::Closed | Phase::Active | Phase::MovingOut(_))
    }

    /// Whether messages of callers here wait for the actor to come, instead of following it to where it still is.
    pub(crate) fn holds_own(&self) -> bool {
        matches!(self, Phase::MovingIn(incoming) if incoming.step != InStep::Settling)
    }

    /// Whether messages that wait here have no certain place in the actor's queue.
    pub(crate) fn is_limbo(&self) -> bool {
        match self {
            Phase::Expected | Phase::Releasing(_) | Phase::Leaving => true,
            // Until the whole queue is here, a sender that has moved meanwhile may still get something in before.
            Phase::MovingIn(incoming) => !incoming.released,
            Phase::Activating | Phase::Closed | Phase::Active | Phase::MovingOut(_) | Phase::Departed(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_that_just_runs_takes_little() {
        assert_eq!(size_of::<Hosted>(), 16);
    }

    #[test]
    fn it_is_the_same_whether_it_just_runs_or_not() {
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

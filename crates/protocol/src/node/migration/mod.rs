//! Migration of activations: the source stages the state at the target, the directory commits, and the queue follows.
//!
//! [`MovesOut`] is the source's side and has the sequence diagram, [`MovesIn`] the target's side. The steps of a move are
//! phases of the hosted actor.

mod group;
mod queue;
mod release;
mod settle;
mod source;
mod stage;
mod target;

use elastin_types::{ActivationEpoch, ActorId};

use crate::{Body, MoveBody, MoveStep};

pub(super) use release::Released;
pub(super) use source::MovesOut;
pub(super) use target::MovesIn;

/// Identifies a move on both sides: an attempt to move an activation.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) actor: ActorId,
    pub(super) epoch: ActivationEpoch,
    pub(super) number: u32,
}

impl Attempt {
    /// The frame with a step of this move.
    fn body(&self, step: MoveStep) -> Body {
        Body::Move(MoveBody {
            actor: self.actor.clone(),
            epoch: self.epoch,
            attempt: self.number,
            step,
        })
    }
}

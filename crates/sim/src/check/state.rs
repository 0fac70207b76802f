//! Source: the design's "nothing is lost or run twice by a planned move". An actor's state counts what it ran in this
//! life: a move that left something behind, or went on from an old image, shows as a wrong count. And the activation at the
//! target of a decided move continues the life that was frozen.

use std::collections::BTreeMap;

use elastin_types::{ActivationEpoch, ActorId, NodeId};

use super::{Turn, Violation};

/// State moves whole.
#[derive(Debug, Default)]
pub(crate) struct StateMoves {
    effects: BTreeMap<(ActorId, u64), u64>,
    /// The latest activation of an actor that was frozen, and its life.
    frozen: BTreeMap<ActorId, (ActivationEpoch, u64)>,
    /// The life that an activation on a node continues, because a move to there was decided.
    continues: BTreeMap<(ActorId, ActivationEpoch, NodeId), u64>,
}

impl StateMoves {
    /// An actor is frozen for a move. A node that does not know yet that it is no longer a member may freeze an activation
    /// that others have left behind.
    pub(crate) fn frozen(&mut self, actor: &ActorId, epoch: ActivationEpoch, life: u64) {
        let latest = self.frozen.entry(actor.clone()).or_insert((epoch, life));
        if latest.0 <= epoch {
            *latest = (epoch, life);
        }
    }

    /// The move is decided: this activation continues the one that was frozen, if it is where the move was to lead. (If it
    /// is elsewhere, the one there was lost again.)
    pub(crate) fn moves(&mut self, actor: &ActorId, epoch: ActivationEpoch, to: NodeId) {
        if let Some((_, life)) = self.frozen.get(actor) {
            self.continues.insert((actor.clone(), epoch, to), *life);
        }
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let activation = (turn.actor.clone(), turn.epoch, turn.node);
        if let Some(life) = self.continues.get(&activation)
            && *life != turn.state.life
        {
            let what = format!("{:?} begins anew on {} after a move", turn.actor, turn.node);
            return Violation::of("a move keeps the state", Some(turn.actor), what);
        }
        let life = (turn.actor.clone(), turn.state.life);
        let effects = self.effects.entry(life).or_insert(turn.state.born_with);
        *effects += 1;
        if *effects == turn.state.effects {
            return Ok(());
        }
        let what = format!(
            "{:?} on {} counts {} messages, but {effects} have run",
            turn.actor, turn.node, turn.state.effects
        );
        *effects = turn.state.effects;
        Violation::of("a move keeps the state", Some(turn.actor), what)
    }
}

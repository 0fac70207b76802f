//! Source: the design's "nothing is lost or run twice by a planned move". An actor's state counts its turns in this
//! incarnation, so a move that loses state or resumes from an old image shows as a wrong count. The activation at the
//! target of a decided move continues the frozen incarnation.

use std::collections::BTreeMap;

use elastin_types::{ActivationEpoch, ActorId, NodeId};

use super::{Turn, Violation};

/// A move transfers the whole state.
#[derive(Debug, Default)]
pub(crate) struct StateMoves {
    effects: BTreeMap<(ActorId, u64), u64>,
    /// The latest frozen activation of each actor, and its incarnation.
    frozen: BTreeMap<ActorId, (ActivationEpoch, u64)>,
    /// The incarnation that an activation on a node continues after a decided move.
    continues: BTreeMap<(ActorId, ActivationEpoch, NodeId), u64>,
}

impl StateMoves {
    /// An actor is frozen for a move. A node that has not learned of its eviction may freeze a superseded activation,
    /// which is ignored.
    pub(crate) fn frozen(&mut self, actor: &ActorId, epoch: ActivationEpoch, incarnation: u64) {
        let latest = self.frozen.entry(actor.clone()).or_insert((epoch, incarnation));
        if latest.0 <= epoch {
            *latest = (epoch, incarnation);
        }
    }

    /// A move is decided: this activation at the target continues the frozen one. An activation elsewhere means that
    /// the one at the target was lost again.
    pub(crate) fn moves(&mut self, actor: &ActorId, epoch: ActivationEpoch, to: NodeId) {
        if let Some((_, incarnation)) = self.frozen.get(actor) {
            self.continues.insert((actor.clone(), epoch, to), *incarnation);
        }
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let activation = (turn.actor.clone(), turn.epoch, turn.node);
        if let Some(incarnation) = self.continues.get(&activation)
            && *incarnation != turn.state.incarnation
        {
            let description = format!(
                "{:?} starts without its state on {} after a move",
                turn.actor, turn.node
            );
            return Violation::of("a move keeps the state", Some(turn.actor), description);
        }
        let incarnation = (turn.actor.clone(), turn.state.incarnation);
        let effects = self.effects.entry(incarnation).or_insert(turn.state.initial_effects);
        *effects += 1;
        if *effects == turn.state.effects {
            return Ok(());
        }
        let description = format!(
            "{:?} on {} counts {} messages, but {effects} have run",
            turn.actor, turn.node, turn.state.effects
        );
        *effects = turn.state.effects;
        Violation::of("a move keeps the state", Some(turn.actor), description)
    }
}

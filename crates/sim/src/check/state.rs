//! Source: the design's "nothing is lost or run twice by a planned move". An actor's state counts what it ran in this
//! life: a move that left something behind, or went on from an old image, shows as a wrong count.

use std::collections::BTreeMap;

use elastin_types::ActorId;

use super::{Turn, Violation};

/// State moves whole.
#[derive(Debug, Default)]
pub(crate) struct StateMoves {
    effects: BTreeMap<(ActorId, u64), u64>,
}

impl StateMoves {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
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

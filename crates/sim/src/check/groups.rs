//! Source: the contract's "actors that move together". If one of a group is moved, all of it were taken and frozen: none
//! has stayed because its target did not want it, or because it could not be frozen.

use std::collections::BTreeMap;

use elastin_protocol::{MoveError, MoveId};
use elastin_types::ActivationEpoch;

use super::Violation;

/// A group moves as a whole, or stays.
#[derive(Debug, Default)]
pub(crate) struct WholeGroups {
    /// The group of each move in one, by its first.
    group_of: BTreeMap<MoveId, MoveId>,
    groups: BTreeMap<MoveId, Fate>,
}

#[derive(Debug, Default)]
struct Fate {
    moved: Option<MoveId>,
    kept: Option<(MoveId, MoveError)>,
}

impl WholeGroups {
    /// These are to move together.
    pub(crate) fn begins(&mut self, moves: impl Iterator<Item = MoveId>) {
        let mut moves = moves.peekable();
        if let Some(first) = moves.peek().copied() {
            self.group_of.extend(moves.map(|id| (id, first)));
            self.groups.insert(first, Fate::default());
        }
    }

    /// A move has ended.
    pub(crate) fn ends(&mut self, id: MoveId, result: Result<ActivationEpoch, MoveError>) -> Result<(), Violation> {
        let Some(fate) = self.group_of.get(&id).and_then(|group| self.groups.get_mut(group)) else {
            return Ok(());
        };
        match result {
            Ok(_) => fate.moved = Some(id),
            // These may also happen when all are frozen.
            Err(MoveError::DeadlineExceeded | MoveError::TargetLost) => {}
            Err(why) => fate.kept = Some((id, why)),
        }
        match (fate.moved, fate.kept) {
            (Some(moved), Some((kept, why))) => {
                let what = format!("{moved:?} is done, and {kept:?} of the same group is not: {why}");
                Violation::of("a group moves as a whole", None, what)
            }
            _ => Ok(()),
        }
    }
}

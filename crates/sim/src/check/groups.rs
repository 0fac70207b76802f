//! Source: the contract's "actors that move together". If one actor of a group is moved, all of them were accepted and
//! frozen: none stayed because its target refused it or because it could not be frozen.

use std::collections::BTreeMap;

use elastin_protocol::{MoveError, MoveId};
use elastin_types::ActivationEpoch;

use super::Violation;

/// A group moves as a whole, or stays.
#[derive(Debug, Default)]
pub(crate) struct WholeGroups {
    /// The group of each move, identified by its first move.
    group_of: BTreeMap<MoveId, MoveId>,
    groups: BTreeMap<MoveId, GroupFate>,
}

#[derive(Debug, Default)]
struct GroupFate {
    moved: Option<MoveId>,
    kept: Option<(MoveId, MoveError)>,
}

impl WholeGroups {
    /// A group move begins.
    pub(crate) fn begins(&mut self, moves: impl Iterator<Item = MoveId>) {
        let mut moves = moves.peekable();
        if let Some(first) = moves.peek().copied() {
            self.group_of.extend(moves.map(|id| (id, first)));
            self.groups.insert(first, GroupFate::default());
        }
    }

    /// A move has ended.
    pub(crate) fn ends(&mut self, id: MoveId, result: Result<ActivationEpoch, MoveError>) -> Result<(), Violation> {
        let Some(fate) = self.group_of.get(&id).and_then(|group| self.groups.get_mut(group)) else {
            return Ok(());
        };
        match result {
            Ok(_) => fate.moved = Some(id),
            // These can also happen after all are frozen.
            Err(MoveError::DeadlineExceeded | MoveError::TargetLost) => {}
            Err(why) => fate.kept = Some((id, why)),
        }
        match (fate.moved, fate.kept) {
            (Some(moved), Some((kept, why))) => {
                let description = format!("{moved:?} is done, and {kept:?} of the same group is not: {why}");
                Violation::of("a group moves as a whole", None, description)
            }
            _ => Ok(()),
        }
    }
}

//! Source: the contract's table of what a move does when something dies or its deadline passes. A move ends by its deadline,
//! or, if the directory must be asked, when a new owner of the slot can have answered.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_protocol::MoveId;
use elastin_types::{NodeId, Time};

use super::Violation;
use crate::world::Moving;

/// How long a move may take: its deadline, and the time in which a dead owner of its slot is replaced and has asked all
/// nodes, while the network is cut and coordination away.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);

/// No move whose source lives outlives its time.
pub(crate) fn check_moves(
    moves: &BTreeMap<MoveId, Moving>,
    now: Time,
    lives: impl Fn(NodeId) -> bool,
) -> Result<(), Violation> {
    for (id, moving) in moves {
        let took = moving.ended.map_or(now, |(at, _)| at).since(moving.began);
        let is_open = moving.ended.is_none();
        if took > MOVE_TIME_MAX && (!is_open || lives(moving.source)) {
            let how = if is_open { "has not ended after" } else { "took" };
            let what = format!("{id:?} from {} {how} {took:?}", moving.source);
            return Violation::of("no move outlives its deadline", None, what);
        }
    }
    Ok(())
}

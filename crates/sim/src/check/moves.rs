//! Source: the contract's table of moves with failures and deadlines. A move ends by its deadline or, if the directory
//! must decide it, once a new owner of the slot can have answered.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_protocol::MoveId;
use elastin_types::{NodeId, Time};

use super::Violation;
use crate::world::Moving;

/// The longest time of a move: its deadline, plus the time to replace a dead owner of its slot and to query all nodes
/// while the network is partitioned and coordination is down.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);

/// Checks that no move outlives its time while its source is alive.
pub(crate) fn check_moves(
    moves: &BTreeMap<MoveId, Moving>,
    now: Time,
    is_alive: impl Fn(NodeId) -> bool,
) -> Result<(), Violation> {
    for (id, moving) in moves {
        let took = moving.ended.map_or(now, |(at, _)| at).since(moving.began);
        let is_open = moving.ended.is_none();
        if took > MOVE_TIME_MAX && (!is_open || is_alive(moving.source)) {
            let verb = if is_open { "has not ended after" } else { "took" };
            let description = format!("{id:?} from {} {verb} {took:?}", moving.source);
            return Violation::of("no move outlives its deadline", None, description);
        }
    }
    Ok(())
}

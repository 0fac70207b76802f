//! Source: the design's "a safety phase, then heal and require progress". After the faults have stopped, all members
//! agree, every call has ended, and all tables are empty again.

use elastin_types::CallId;

use super::Violation;
use crate::world::World;

/// Checks that a healed world has come to rest.
pub(crate) fn check_at_rest(world: &World) -> Result<(), Violation> {
    if !world.is_agreed() {
        let description = format!("members don't agree: {:?}", world.roles());
        return Violation::of("members agree again", None, description);
    }
    let is_alive = |node| world.is_alive(node);
    let open: Vec<CallId> = match world.options.may_lose() {
        true => world.checkers.outcome.unanswered(is_alive),
        false => world.checkers.outcome.open(is_alive),
    };
    if let Some(first) = open.first() {
        let description = format!("{} calls have no outcome, such as {first:?}", open.len());
        return Violation::of("everything is served", None, description);
    }
    for (node, sizes) in world.table_sizes() {
        let left = sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.closed_slots;
        if left + sizes.moves_in + sizes.moves_out + sizes.moves_waiting > 0 {
            let description = format!("{node} still has {sizes:?}");
            return Violation::of("tables become small again", None, description);
        }
    }
    let open = world
        .moves
        .iter()
        .find(|(_, moving)| moving.ended.is_none() && is_alive(moving.source));
    match open {
        Some((id, moving)) => {
            let description = format!("{id:?} from {} has not ended", moving.source);
            Violation::of("no move is left over", None, description)
        }
        None => Ok(()),
    }
}

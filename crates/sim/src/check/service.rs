//! Source: the design's "a safety phase, then heal and require progress". After the faults have stopped, all members agree,
//! every call has ended, and nothing is left over in any table.

use elastin_types::CallId;

use super::Violation;
use crate::world::World;

/// What still keeps a healed world from being at rest; nothing if it is.
pub(crate) fn what_is_left(world: &World) -> Result<(), Violation> {
    if !world.is_agreed() {
        let what = format!("members don't agree: {:?}", world.roles());
        return Violation::of("members agree again", None, what);
    }
    let lives = |node| world.lives(node);
    let open: Vec<CallId> = match world.options.may_lose() {
        true => world.checkers.outcome.unanswered(lives),
        false => world.checkers.outcome.open(lives),
    };
    if let Some(first) = open.first() {
        let what = format!("{} calls have no outcome, such as {first:?}", open.len());
        return Violation::of("everything is served", None, what);
    }
    for (node, sizes) in world.table_sizes() {
        let left = sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.closed_slots;
        if left + sizes.moves_in + sizes.moves_out + sizes.moves_waiting > 0 {
            let what = format!("{node} still has {sizes:?}");
            return Violation::of("tables become small again", None, what);
        }
    }
    let open = world
        .moves
        .iter()
        .find(|(_, moving)| moving.ended.is_none() && lives(moving.source));
    match open {
        Some((id, moving)) => {
            let what = format!("{id:?} from {} has not ended", moving.source);
            Violation::of("no move is left over", None, what)
        }
        None => Ok(()),
    }
}

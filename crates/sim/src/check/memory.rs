//! Source: the project's rule that everything is bounded. No table and no queue of a node grows beyond its limit, even
//! during faults.

use elastin_protocol::{Limits, TableSizes};
use elastin_types::NodeId;

use super::Violation;

/// Checks that tables and queues stay within their limits.
///
/// A moving mailbox precedes held messages, so the two bounds add up.
pub(crate) fn check_bounds(
    node: NodeId,
    sizes: &TableSizes,
    limits: &Limits,
    mailbox_max: usize,
) -> Result<(), Violation> {
    let held_max = limits.held_per_actor + mailbox_max;
    let bounds = [
        ("messages held for one actor", sizes.held_most, held_max),
        (
            "requests remembered for one actor",
            sizes.requests_most,
            limits.requests_per_actor,
        ),
        ("moves away", sizes.moves_out, limits.moves_out),
        ("moves here", sizes.moves_in, limits.moves_in),
    ];
    for (table, size, most) in bounds {
        if size > most {
            let description = format!("{node} has {size} {table}, and may have {most}");
            return Violation::of("memory is bounded", None, description);
        }
    }
    Ok(())
}

//! Source: the design's "order per sender and receiver survives a move". Of two messages from one incarnation of a
//! sender to one receiver, the earlier never runs after the later. A sender begins a new incarnation when it is
//! activated again, and when the node that it moved away from crashes before the sender runs at the target.

use std::collections::BTreeMap;

use elastin_types::{ActorId, Caller};

use super::{Turn, Violation};

/// Order per sender and receiver.
#[derive(Debug, Default)]
pub(crate) struct OrderPerPair {
    last: BTreeMap<(Caller, u64, ActorId), u64>,
}

impl OrderPerPair {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let pair = (turn.caller.clone(), turn.sender_incarnation, turn.actor.clone());
        let last = self.last.entry(pair).or_insert(0);
        if turn.number <= *last {
            let description = format!(
                "{:?} runs message {} of {:?} after message {last}",
                turn.actor, turn.number, turn.caller
            );
            return Violation::of("order per sender and receiver", Some(turn.actor), description);
        }
        *last = turn.number;
        Ok(())
    }
}

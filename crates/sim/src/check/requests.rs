//! Source: the contract's "calls that are made again". Of all calls of one request, an actor runs one in each of its
//! incarnations, however often it is moved.

use std::collections::BTreeSet;

use elastin_protocol::RequestId;
use elastin_types::ActorId;

use super::{Turn, Violation};

/// A request runs once.
#[derive(Debug, Default)]
pub(crate) struct OncePerRequest {
    ran: BTreeSet<(RequestId, ActorId, u64)>,
}

impl OncePerRequest {
    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let Some(request) = turn.request else {
            return Ok(());
        };
        if self.ran.insert((request, turn.actor.clone(), turn.state.incarnation)) {
            return Ok(());
        }
        let description = format!("{request:?} runs again on {} as {:?}", turn.node, turn.call);
        Violation::of("no request runs twice", Some(turn.actor), description)
    }
}

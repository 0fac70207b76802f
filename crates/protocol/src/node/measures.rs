//! What is measured of a node's part in the protocol.

use std::sync::Arc;

use elastin_types::{CallError, Message, Overloaded};

use super::Node;

/// What was full when a message was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// As many messages as may wait for one actor did: it is being found, activated or moved.
    Actor,
    /// The credit of a peer was used up.
    Link,
    /// As many messages as may wait for the new owner of a part of the directory did.
    Directory,
}

/// How many messages a node has turned away because something was full. What the runtime's mailboxes turn away is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnedAway {
    /// As many messages as may wait for one actor did: it was being found, activated or moved.
    pub by_actor: u64,
    /// Too much was on its way to a peer: its credit was used up.
    pub by_link: u64,
    /// As many messages as may wait for the new owner of a part of the directory did.
    pub by_directory: u64,
}

/// What is measured of a node's part in the protocol. Looking costs as much as there are peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMeasures {
    /// What was turned away since the node began.
    pub turned_away: TurnedAway,
    /// How often peers said what only servers and owners of slots send, and were neither.
    pub refused: u64,
    /// Frames that were sent to peers and are not acknowledged.
    pub unacknowledged: usize,
    /// The bytes of arguments, replies and states in them: the credit that is in use.
    pub unacknowledged_bytes: usize,
}

impl Node {
    /// What is measured of this node.
    pub fn measures(&self) -> NodeMeasures {
        let (unacknowledged, unacknowledged_bytes) = self.sessions.credit_in_use();
        NodeMeasures {
            turned_away: self.turned_away,
            refused: self.refused,
            unacknowledged,
            unacknowledged_bytes,
        }
    }

    /// A message will not run, because something is full.
    pub(super) fn turn_away_from(&mut self, full: Full, message: Arc<Message>) {
        let turned_away = &mut self.turned_away;
        let (count, overloaded) = match full {
            Full::Actor => (&mut turned_away.by_actor, Overloaded::Actor),
            Full::Link => (&mut turned_away.by_link, Overloaded::Node),
            Full::Directory => (&mut turned_away.by_directory, Overloaded::Node),
        };
        *count += 1;
        self.turn_away(message, CallError::Overloaded(overloaded));
    }
}

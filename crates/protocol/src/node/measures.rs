//! Counters of a node's part in the protocol.

use std::sync::Arc;

use elastin_types::Message;

use super::Node;

/// The bound that caused a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The limit of messages held for one actor while it is being located, activated or moved.
    Actor,
    /// The credit of a peer.
    Link,
    /// The limit of messages queued for a slot that is not open.
    Directory,
}

/// A message that is to be rejected because a bound is reached.
#[derive(Debug)]
pub(super) struct NoRoom(pub(super) Full, pub(super) Arc<Message>);

/// Number of messages a node has rejected because a bound was reached. Rejections by mailboxes are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    /// Rejected by the limit of messages held for one actor while it is being located, activated or moved.
    pub by_actor: u64,
    /// Rejected because a peer's credit was used up.
    pub by_link: u64,
    /// Rejected by the limit of messages queued for a slot that is not open.
    pub by_directory: u64,
}

/// Counters of a node's part in the protocol. Reading them is linear in the number of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMeasures {
    /// Messages rejected since the node started.
    pub rejections: Rejections,
    /// Bodies rejected because only servers or slot owners may send them and the sender was neither.
    pub refused: u64,
    /// Frames sent to peers and not acknowledged.
    pub unacknowledged: usize,
    /// Payload bytes of the unacknowledged frames: the credit in use.
    pub unacknowledged_bytes: usize,
}

impl Node {
    /// Current counters of this node.
    pub fn measures(&self) -> NodeMeasures {
        let (unacknowledged, unacknowledged_bytes) = self.env.credit_in_use();
        NodeMeasures {
            rejections: self.rejections,
            refused: self.refused,
            unacknowledged,
            unacknowledged_bytes,
        }
    }
}

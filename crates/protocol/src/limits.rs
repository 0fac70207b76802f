//! What bounds a node's tables and waits, each with its reason.

use std::time::Duration;

use elastin_types::NodeId;

/// What a [`Node`](crate::Node) needs to know of itself.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This node.
    pub me: NodeId,
    /// Whether it hosts actors; a client is a node that hosts nothing.
    pub hosts: bool,
    /// Its bounds.
    pub limits: Limits,
}

/// The bounds of a [`Node`](crate::Node). The defaults suit a data centre.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Messages that may wait for one actor at this node while it is being activated, moved or found. Beyond it calls
    /// are turned away as overloaded, so that one stuck actor can't fill memory.
    pub held_per_actor: usize,
    /// Frames that may be on their way to one peer, sent and not acknowledged. Beyond it calls are turned away, so that
    /// a slow or unreachable peer can't fill memory; the protocol's own frames still pass.
    pub unacknowledged_per_peer: usize,
    /// The bytes of arguments and states that these frames may have: the credit of a peer. Above it calls are turned away
    /// too, so that few large calls to a slow peer can't fill memory either.
    pub unacknowledged_bytes_per_peer: usize,
    /// Places of actors that this node remembers as a sender. The oldest quiet ones are forgotten first; a forgotten
    /// place costs one message delay at the next call.
    pub routes: usize,
    /// Moves that may be under way from this node at once, so that many moves don't slow each other down.
    pub moves_out: usize,
    /// Moves that may be under way to this node at once; what it holds in memory for them is bounded by it.
    pub moves_in: usize,
    /// Moves that may wait to begin: all actors of a large server, so that it can be emptied in one go.
    pub moves_waiting: usize,
    /// Bytes of state images that moves from this node, or to it, may have in memory before no further move begins.
    pub move_bytes: usize,
    /// The largest part of a state image or queue in one frame, so that a large state never blocks calls for long: those
    /// on the same connection wait for a few parts at most.
    pub chunk_bytes: usize,
    /// A state image up to this size leaves in one go. Of a larger one only a few parts are on their way at a time.
    pub burst_bytes: usize,
    /// How long the next part of such a large image waits while calls travel between the same nodes: they find the
    /// connection, and the processors of both nodes, free for most of that time.
    pub stage_pause: Duration,
    /// DedupTable that one activation remembers, so that they don't run twice. Beyond it further ones are turned away: their
    /// callers have not settled the earlier ones.
    pub requests_per_actor: usize,
    /// The bytes of replies that a node keeps for calls that are made again. Beyond it only that they ran is remembered.
    pub request_bytes: usize,
    /// DedupTable of callers here that may be made again, and that every call of another one must not settle.
    pub requests_open: usize,
    /// How long a move may take from its start to the directory's decision. After it the actor goes on where it was.
    pub move_deadline: Duration,
    /// How long a frozen actor waits for the end of its current turn before the move is given up.
    pub freeze_deadline: Duration,
    /// How long a received frame may wait for a frame in the other direction that carries its acknowledgement.
    pub acknowledge_after: Duration,
    /// How long a frame may stay unacknowledged before it is sent again. Connections that break are noticed at once;
    /// this is for the ones that hang.
    pub retransmit_after: Duration,
    /// How long a node remembers where an actor of its own went, to forward messages without asking the directory.
    pub tombstone_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held_per_actor: 10_000,
            unacknowledged_per_peer: 100_000,
            unacknowledged_bytes_per_peer: 64 << 20,
            routes: 1_000_000,
            moves_out: 32,
            moves_in: 32,
            moves_waiting: 1_000_000,
            move_bytes: 64 << 20,
            chunk_bytes: 64 << 10,
            burst_bytes: 1 << 20,
            stage_pause: Duration::from_millis(1),
            requests_per_actor: 1024,
            request_bytes: 64 << 20,
            requests_open: 100_000,
            move_deadline: Duration::from_secs(10),
            freeze_deadline: Duration::from_secs(2),
            acknowledge_after: Duration::from_millis(5),
            retransmit_after: Duration::from_secs(1),
            tombstone_for: Duration::from_secs(60),
        }
    }
}

//! Bounds of a node's tables and waits, each with its reason.

use std::time::Duration;

use elastin_types::NodeId;

/// Configuration of a [`Node`](crate::Node).
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This node's id.
    pub me: NodeId,
    /// Whether it hosts actors; a client is a node that hosts nothing.
    pub hosts: bool,
    /// The node's bounds.
    pub limits: Limits,
}

/// Bounds of a [`Node`](crate::Node). The defaults suit a data centre.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Messages held for one actor at this node while it is being activated, moved or located. Beyond it calls are
    /// rejected as overloaded, so that one stuck actor cannot fill memory.
    pub held_per_actor: usize,
    /// Unacknowledged frames to one peer. Beyond it calls are rejected, so that a slow or unreachable peer cannot fill
    /// memory; the protocol's own frames still pass.
    pub unacknowledged_per_peer: usize,
    /// Payload bytes of these frames: the credit of a peer. Beyond it calls are rejected too, so that a few large calls
    /// to a slow peer cannot fill memory either.
    pub unacknowledged_bytes_per_peer: usize,
    /// Locations of actors cached by this node as a sender. Quiet ones are evicted; an evicted location costs one
    /// message delay at the next call.
    pub routes: usize,
    /// Concurrent moves from this node, so that many moves do not slow each other down.
    pub moves_out: usize,
    /// Concurrent moves to this node; bounds the memory that it uses for them.
    pub moves_in: usize,
    /// Queued moves: all actors of a large server, so that it can be drained in one go.
    pub moves_waiting: usize,
    /// Bytes of state images in memory, per direction, beyond which no further move begins.
    pub move_bytes: usize,
    /// The largest chunk of a state image or queue in one frame. Calls on the same connection wait for a few chunks at
    /// most.
    pub chunk_bytes: usize,
    /// A state image up to this size is sent in one go. A larger one has only a few chunks in flight at a time.
    pub burst_bytes: usize,
    /// Pause before the next chunk of such a large image while calls are exchanged between the same nodes. It leaves
    /// the connection and the processors of both nodes mostly free for calls.
    pub stage_pause: Duration,
    /// Deduplication records per activation. Beyond it further requests are rejected: their callers have not settled
    /// the earlier ones.
    pub requests_per_actor: usize,
    /// Bytes of replies that a node keeps for retried calls. Beyond it a record only states that the call ran.
    pub request_bytes: usize,
    /// Open requests of local callers, which no call of another request may settle.
    pub requests_open: usize,
    /// Time from the start of a move to the directory's decision. After it the actor resumes where it was.
    pub move_deadline: Duration,
    /// Time a freeze waits for the end of the current turn before the move is given up.
    pub freeze_deadline: Duration,
    /// Time an acknowledgement may wait for a frame in the other direction to carry it.
    pub acknowledge_after: Duration,
    /// Time a frame may stay unacknowledged before it is retransmitted. Broken connections are noticed at once; this is
    /// for stalled ones.
    pub retransmit_after: Duration,
    /// Time a tombstone is kept, to forward messages without asking the directory.
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

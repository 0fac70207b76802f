//! What is measured of the receive and the send stage: the tasks, and for lone frames the threads, that read and write
//! connections.
//!
//! Everything is counted once for a batch of frames, so that a frame costs next to nothing here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What went through a stage since the transport started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageMeasures {
    /// Frames.
    pub frames: u64,
    /// The bytes of these frames, without what encryption adds.
    pub bytes: u64,
    /// Batches: frames that were taken in together, or written together.
    pub batches: u64,
    /// How long the stage was at it. For the send stage that includes waiting for a peer that is slow to take it.
    pub time: Duration,
}

/// What is measured of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportMeasures {
    /// What came from peers and was taken in.
    pub received: StageMeasures,
    /// What was written to peers.
    pub sent: StageMeasures,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Frames that were not taken because too much waited for the peer already.
    pub backlogged: u64,
    /// Peers to whom there is a connection.
    pub links: u64,
    /// The oldest version of the wire that is spoken with one of these; 0 if there are none.
    pub wire_version_oldest: u16,
    /// How long the process has looked for frames instead of sleeping: the processor's time, which could have been anybody's.
    pub busy_poll_time: Duration,
}

/// Both metrics, for those who count.
#[derive(Debug, Default)]
pub(super) struct TransportMetrics {
    pub(super) received: Stage,
    pub(super) sent: Stage,
    pub(super) backlogged: AtomicU64,
}

/// One stage. On a cache line of its own, because different threads count different metrics.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Stage {
    frames: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    nanos: AtomicU64,
}

impl Stage {
    /// Some frames went through together.
    pub(super) fn passed(&self, frames: usize, bytes: usize, time: Duration) {
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.frames, frames as u64);
        add(&self.bytes, bytes as u64);
        add(&self.batches, 1);
        // More than 500 years do not come to pass.
        add(&self.nanos, time.as_nanos() as u64);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn measures(&self) -> StageMeasures {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StageMeasures {
            frames: value(&self.frames),
            bytes: value(&self.bytes),
            batches: value(&self.batches),
            time: Duration::from_nanos(value(&self.nanos)),
        }
    }
}

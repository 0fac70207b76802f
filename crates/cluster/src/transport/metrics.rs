//! Metrics of the receive and the send stage: the tasks and threads that read and write connections.
//!
//! Counters are updated once for each batch of frames, so that their cost per frame is negligible.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Metrics of a stage since the transport started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageMeasures {
    /// Frames.
    pub frames: u64,
    /// The bytes of these frames, without the overhead of encryption.
    pub bytes: u64,
    /// Batches of frames that were handled together, or written together.
    pub batches: u64,
    /// The time spent. For the send stage it includes the time that slow peers block writes.
    pub time: Duration,
}

/// Metrics of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportMeasures {
    /// Frames received from peers and handled.
    pub received: StageMeasures,
    /// Frames written to peers.
    pub sent: StageMeasures,
    /// Bytes in send queues.
    pub queued_bytes: u64,
    /// Frames rejected because the peer's send queue was full.
    pub backlogged: u64,
    /// Connected peers.
    pub links: u64,
    /// The oldest wire version in use with a connected peer; 0 if there are none.
    pub wire_version_oldest: u16,
    /// The CPU time that the process has spent on busy-polling.
    pub busy_poll_time: Duration,
}

/// Counters of both stages.
#[derive(Debug, Default)]
pub(super) struct TransportMetrics {
    pub(super) received: Stage,
    pub(super) sent: Stage,
    pub(super) backlogged: AtomicU64,
}

/// Counters of one stage. Each is on its own cache line, because different threads update them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Stage {
    frames: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    nanos: AtomicU64,
}

impl Stage {
    /// Counts a batch of frames.
    pub(super) fn record(&self, frames: usize, bytes: usize, time: Duration) {
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.frames, frames as u64);
        add(&self.bytes, bytes as u64);
        add(&self.batches, 1);
        // 64 bits of nanoseconds last for more than 500 years.
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

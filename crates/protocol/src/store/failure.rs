//! Failures of the store itself, as opposed to rejected requests.

use serde::{Deserialize, Serialize};

/// The store itself failed. [`StoreFailure::may_be_applied`] reports whether the request may have taken effect. Writes
/// acknowledged earlier remain durable in any case, except for [`StoreFailure::Corrupt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreFailure {
    /// The store could not be reached, and the request was never sent. Retry when it is back.
    #[error("the store can't be reached: {reason}")]
    Unreachable {
        /// Human-readable cause.
        reason: String,
    },
    /// The request started and its outcome is unknown: it may have been applied. Read before you retry.
    #[error("the request was interrupted and may have been applied: {reason}")]
    Interrupted {
        /// Human-readable cause.
        reason: String,
    },
    /// Too many requests are pending. Nothing happened; retry later.
    #[error("the store has too many requests waiting")]
    Overloaded,
    /// The disk is full. Nothing happened; the store resumes once space is available.
    #[error("the store's disk is full")]
    DiskFull,
    /// The store's file or its directory does not allow writing. Nothing happened.
    #[error("the store's file can't be written: {reason}")]
    ReadOnly {
        /// Error text of the operating system.
        reason: String,
    },
    /// The store's file is corrupted. Requests that need the damaged part fail; don't retry, restore the file.
    #[error("the store's file is damaged: {reason}")]
    Corrupt {
        /// Description of the damage.
        reason: String,
    },
    /// Reading or writing failed in another way. Nothing happened; retry later.
    #[error("the store's disk failed: {reason}")]
    Io {
        /// Error text of the operating system.
        reason: String,
    },
    /// The store was shut down before it accepted the request. Nothing happened.
    #[error("the store is closed")]
    Closed,
}

impl StoreFailure {
    /// Whether the request may have taken effect although it failed.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, StoreFailure::Interrupted { .. })
    }
}

//! How a store can fail to do its work, as opposed to refusing a request.

use serde::{Deserialize, Serialize};

/// The store itself failed. [`StoreFailure::may_be_applied`] says whether the request may have taken effect; what was
/// acknowledged earlier stands in any case, except for [`StoreFailure::Corrupt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreFailure {
    /// The store could not be reached, and the request was never sent. Retry when it is back.
    #[error("the store can't be reached: {reason}")]
    Unreachable {
        /// What went wrong, for people.
        reason: String,
    },
    /// The request was begun and its end is unknown: it may have been applied. Read before you retry.
    #[error("the request was interrupted and may have been applied: {reason}")]
    Interrupted {
        /// What went wrong, for people.
        reason: String,
    },
    /// Too many requests wait already. Nothing happened; retry later.
    #[error("the store has too many requests waiting")]
    Overloaded,
    /// The disk is full. Nothing happened; the store goes on when there is room again.
    #[error("the store's disk is full")]
    DiskFull,
    /// The store's file or its directory does not allow writing. Nothing happened.
    #[error("the store's file can't be written: {reason}")]
    ReadOnly {
        /// What the system said.
        reason: String,
    },
    /// The store's file does not hold what was written to it. DedupTable that need the damaged part fail; don't retry,
    /// restore the file.
    #[error("the store's file is damaged: {what}")]
    Corrupt {
        /// What was found.
        what: String,
    },
    /// Reading or writing failed in another way. Nothing happened; retry later.
    #[error("the store's disk failed: {reason}")]
    Io {
        /// What the system said.
        reason: String,
    },
    /// The store was shut down before it took the request. Nothing happened.
    #[error("the store is closed")]
    Closed,
}

impl StoreFailure {
    /// Whether the request may have taken effect although it failed.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, StoreFailure::Interrupted { .. })
    }
}

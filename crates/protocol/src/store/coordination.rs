//! Coordination: a cluster's small, consistent key-value store, in etcd's model of revisions, leases and watches.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Done, StoreFailure};

/// The longest key.
pub const COORDINATION_KEY_BYTES_MAX: usize = 1024;
/// The largest value: coordination holds views, tables and policies, not data.
pub const COORDINATION_VALUE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of keys and values in one commit: etcd's default request limit.
pub const COMMIT_BYTES_MAX: usize = 3 << 19;
/// The most conditions and writes of one commit: etcd's default transaction limit.
pub const WRITES_MAX: usize = 128;
/// The most entries that one range returns.
pub const RANGE_LIMIT_MAX: u32 = 1000;
/// A range stops adding entries once it has this many bytes, so that a reply fits one message.
pub const RANGE_BYTES_MAX: usize = 4 << 20;
/// Approximate batch size of a watch: a batch ends with the revision that reaches this many changes.
pub const WATCH_BATCH_CHANGES_MAX: usize = 1000;
/// The shortest time to live of a lease. Ordinary scheduling delays would expire shorter ones.
pub const LEASE_TTL_MIN: Duration = Duration::from_millis(10);

/// Linearizable store of the data a cluster must agree on. Requests are atomic.
///
/// - Every [`Done`] is called exactly once, and a write is durable before it is called with `Ok`.
/// - Requests that one thread submits one after the other take effect in that order.
pub trait Coordination: Send + Sync {
    /// Submits one request.
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>);

    /// Watches all keys that start with `prefix`, from the changes of revision `from` on, until the guard is dropped.
    ///
    /// To miss nothing, read with [`CoordinationRequest::Range`] and watch from the revision after that of the reply.
    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard;
}

/// Receives the changes of a watch in order, each once. An error ends the watch: after
/// [`CoordinationError::Compacted`], read again and start a new watch. It runs on a store thread and must not block.
pub type WatchSink = Box<dyn FnMut(Result<WatchBatch, CoordinationError>) + Send>;

/// Ends a watch when it is dropped. A batch that is being delivered at that moment may still arrive.
#[must_use = "a watch ends when its guard is dropped"]
pub struct WatchGuard(Option<Box<dyn FnOnce() + Send>>);

impl WatchGuard {
    /// A guard that calls `end` when it is dropped.
    pub fn new(end: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl std::fmt::Debug for WatchGuard {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("WatchGuard")
    }
}

/// Counter of the commits that changed something. It only grows; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Id of a lease, which expires unless it is kept alive within its time to live. Keys bound to it are deleted when it
/// ends. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Bytes,
    /// The revision that last created the key.
    pub created: Revision,
    /// The revision of the last write.
    pub modified: Revision,
    /// The lease it is bound to, if any.
    pub lease: Option<LeaseId>,
}

/// Precondition of a commit on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// The required state.
    pub state: KeyState,
}

/// Required state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyState {
    /// It does not exist.
    Absent,
    /// It exists.
    Present,
    /// Its last write was of this revision.
    ModifiedAt(Revision),
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Write {
    /// Sets a key. Its earlier binding to a lease, if any, is replaced.
    Put {
        /// The key, of at most [`COORDINATION_KEY_BYTES_MAX`] bytes.
        key: String,
        /// The value, of at most [`COORDINATION_VALUE_BYTES_MAX`] bytes.
        value: Bytes,
        /// The lease that the key is bound to.
        lease: Option<LeaseId>,
    },
    /// Removes a key. Does nothing if it does not exist.
    Delete {
        /// The key.
        key: String,
    },
}

impl Entry {
    /// The bytes of key and value.
    pub fn payload_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

impl Write {
    /// The key that it writes.
    pub fn key(&self) -> &str {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Write::Put { key, value, .. } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        }
    }
}

/// Writes applied atomically if all conditions hold. At most [`WRITES_MAX`] conditions and as many writes, with
/// [`COMMIT_BYTES_MAX`] bytes in all; each key is written at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The preconditions.
    pub conditions: Vec<Condition>,
    /// The writes, all in one revision.
    pub writes: Vec<Write>,
}

impl Commit {
    /// Sets one key.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::default().and_put(key, value, None)
    }

    /// Sets one key that is deleted when the lease ends.
    pub fn put_bound(key: impl Into<String>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Self::default().and_put(key, value, Some(lease))
    }

    /// Removes one key.
    pub fn delete(key: impl Into<String>) -> Self {
        Self::default().and_delete(key)
    }

    /// Sets a key as well.
    pub fn and_put(mut self, key: impl Into<String>, value: impl Into<Bytes>, lease: Option<LeaseId>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// Removes a key as well.
    pub fn and_delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }

    /// Whether the commit is idempotent: it writes only keys that it requires to be absent.
    pub fn is_idempotent(&self) -> bool {
        let must_be_absent = |key: &String| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.key == *key && condition.state == KeyState::Absent)
        };
        self.writes.iter().all(|write| match write {
            Write::Put { key, .. } => must_be_absent(key),
            Write::Delete { .. } => false,
        })
    }

    /// The bytes of all written keys and values.
    pub fn payload_bytes(&self) -> usize {
        self.writes.iter().map(Write::payload_bytes).sum()
    }

    /// Checks the limits and that no key is written twice. Every implementation rejects a violation, whatever it stores.
    pub fn check(&self) -> Result<(), CoordinationError> {
        let invalid = |reason: String| Err(CoordinationError::Invalid(reason));
        if self.writes.len() > WRITES_MAX || self.conditions.len() > WRITES_MAX {
            return invalid(format!("more than {WRITES_MAX} conditions or writes"));
        }
        if self.payload_bytes() > COMMIT_BYTES_MAX {
            return invalid(format!("{} bytes in one commit", self.payload_bytes()));
        }
        let mut keys = BTreeSet::new();
        for write in &self.writes {
            let key = write.key();
            if !keys.insert(key) {
                return invalid(format!("`{key}` is written twice"));
            }
            if key.is_empty() || key.len() > COORDINATION_KEY_BYTES_MAX {
                return invalid(format!("a key of {} bytes", key.len()));
            }
            if let Write::Put { value, .. } = write
                && value.len() > COORDINATION_VALUE_BYTES_MAX
            {
                return invalid(format!("a value of {} bytes for `{key}`", value.len()));
            }
        }
        Ok(())
    }

    /// Adds a precondition on a key.
    pub fn when(mut self, key: impl Into<String>, state: KeyState) -> Self {
        self.conditions.push(Condition { key: key.into(), state });
        self
    }
}

impl From<Commit> for CoordinationRequest {
    fn from(commit: Commit) -> Self {
        CoordinationRequest::Commit(commit)
    }
}

/// A request to [`Coordination`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinationRequest {
    /// Grants a lease. Answered by [`CoordinationReply::Granted`].
    Grant {
        /// Time to live after each keep-alive; at least [`LEASE_TTL_MIN`].
        ttl: Duration,
    },
    /// Renews a lease. Answered by [`CoordinationReply::KeptAlive`].
    KeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// Ends a lease and removes the keys bound to it. Answered by [`CoordinationReply::Revoked`].
    Revoke {
        /// The lease.
        lease: LeaseId,
    },
    /// Writes keys if conditions hold. Answered by [`CoordinationReply::Committed`].
    Commit(Commit),
    /// Reads one key. Answered by [`CoordinationReply::Got`].
    Get {
        /// The key.
        key: String,
    },
    /// Reads the keys that start with a prefix, in order. Answered by [`CoordinationReply::Entries`].
    Range {
        /// The prefix.
        prefix: String,
        /// Only keys after this one, to continue an earlier range.
        after: Option<String>,
        /// The most entries wanted; [`RANGE_LIMIT_MAX`] and [`RANGE_BYTES_MAX`] limit them too.
        limit: u32,
    },
}

impl CoordinationRequest {
    /// Whether success changes the durable state. A keep-alive does not.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            CoordinationRequest::Grant { .. } | CoordinationRequest::Revoke { .. } | CoordinationRequest::Commit(_)
        )
    }

    /// Predicate that accepts only replies of the kind this request gets.
    pub fn expects(&self) -> fn(&CoordinationReply) -> bool {
        match self {
            CoordinationRequest::Grant { .. } => |reply| matches!(reply, CoordinationReply::Granted { .. }),
            CoordinationRequest::KeepAlive { .. } => |reply| matches!(reply, CoordinationReply::KeptAlive { .. }),
            CoordinationRequest::Revoke { .. } => |reply| matches!(reply, CoordinationReply::Revoked),
            CoordinationRequest::Commit(_) => |reply| matches!(reply, CoordinationReply::Committed { .. }),
            CoordinationRequest::Get { .. } => |reply| matches!(reply, CoordinationReply::Got { .. }),
            CoordinationRequest::Range { .. } => |reply| matches!(reply, CoordinationReply::Entries { .. }),
        }
    }

    /// The bytes of its keys and values.
    pub fn payload_bytes(&self) -> usize {
        match self {
            CoordinationRequest::Commit(commit) => commit.payload_bytes(),
            _ => 0,
        }
    }
}

/// The answer to a [`CoordinationRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinationReply {
    /// The lease was granted.
    Granted {
        /// Its id.
        lease: LeaseId,
        /// Its time to live, which may be longer than requested.
        ttl: Duration,
    },
    /// The lease was renewed.
    KeptAlive {
        /// Its time to live, counted from when the store received the request.
        ttl: Duration,
    },
    /// The lease has ended.
    Revoked,
    /// The writes are durable.
    Committed {
        /// Their revision; the current one if they changed nothing.
        revision: Revision,
    },
    /// One key was read.
    Got {
        /// Its entry, if it exists.
        entry: Option<Entry>,
        /// The revision it was read at.
        revision: Revision,
    },
    /// Keys were read.
    Entries {
        /// The entries, ordered by key.
        entries: Vec<Entry>,
        /// The revision they were read at.
        revision: Revision,
        /// The range has more entries: continue after the last key.
        more: bool,
    },
}

/// One change delivered to a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A key was set.
    Put(Entry),
    /// A key was removed, by a commit or by the end of its lease.
    Deleted {
        /// The key.
        key: String,
        /// The revision that removed it.
        revision: Revision,
    },
}

impl Change {
    /// The key that changed.
    pub fn key(&self) -> &str {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted { key, .. } => key,
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        match self {
            Change::Put(entry) => entry.modified,
            Change::Deleted { revision, .. } => *revision,
        }
    }
}

/// Changes delivered to a watch. Batches never split a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchBatch {
    /// The changes, ordered by revision.
    pub changes: Vec<Change>,
    /// All changes up to and including this revision have been delivered.
    pub revision: Revision,
}

/// Error of a [`Coordination`] request. Nothing changed, except possibly after [`CoordinationError::Failed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CoordinationError {
    /// A condition of a commit did not hold. Re-read the key before retrying.
    #[error("`{key}` is not as the commit requires")]
    ConditionFailed {
        /// The first key whose condition failed.
        key: String,
        /// The current entry of that key.
        current: Option<Entry>,
    },
    /// The lease does not exist or has ended, and its keys are deleted. Grant a new one.
    #[error("the lease is unknown or has expired")]
    LeaseUnknown,
    /// A watch starts at a compacted revision. Read again, and watch from there.
    #[error("changes before revision {} have been compacted", oldest.0)]
    Compacted {
        /// The oldest revision that can be watched from.
        oldest: Revision,
    },
    /// The request exceeds a limit or contradicts itself. Don't retry.
    #[error("not a valid request: {0}")]
    Invalid(String),
    /// The store failed; [`StoreFailure::may_be_applied`] reports whether the request may have been applied.
    #[error(transparent)]
    Failed(#[from] StoreFailure),
}

impl CoordinationError {
    /// Whether the request may have taken effect although it failed.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, CoordinationError::Failed(failure) if failure.may_be_applied())
    }
}

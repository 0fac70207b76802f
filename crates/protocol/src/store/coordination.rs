//! Coordination: the small, agreed memory of a cluster, in etcd's model of revisions, leases and watches.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Done, StoreFailure};

/// The longest key.
pub const COORDINATION_KEY_BYTES_MAX: usize = 1024;
/// The largest value: coordination holds views, tables and policies, not data.
pub const COORDINATION_VALUE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of keys and values in one commit, which is what etcd takes in one request.
pub const COMMIT_BYTES_MAX: usize = 3 << 19;
/// The most conditions and writes of one commit, which is also what etcd allows unless configured otherwise.
pub const WRITES_MAX: usize = 128;
/// The most entries that one range returns.
pub const RANGE_LIMIT_MAX: u32 = 1000;
/// One range returns no further entry once it has this many bytes, so that a reply fits one message.
pub const RANGE_BYTES_MAX: usize = 4 << 20;
/// A watch gets about this many changes at a time: a batch ends with the revision that reaches it.
pub const WATCH_BATCH_CHANGES_MAX: usize = 1000;
/// The shortest time to live of a lease. Shorter ones would end by the delays of an ordinary scheduler.
pub const LEASE_TTL_MIN: Duration = Duration::from_millis(10);

/// Keeps what a cluster must agree on. All requests are atomic and see all that was done before them.
///
/// - Every [`Done`] is called exactly once, and a write is durable before it is called with `Ok`.
/// - DedupTable that one thread submits one after the other take effect in that order.
pub trait Coordination: Send + Sync {
    /// Hands in one request.
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>);

    /// Watches all keys that start with `prefix`, from the changes of revision `from` on, until the guard is dropped.
    ///
    /// To miss nothing, read with [`CoordinationRequest::Range`] and watch from the revision after that of the reply.
    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard;
}

/// Gets the changes of a watch in order, each once. An error is the last thing it gets: after
/// [`CoordinationError::Compacted`], read again and watch anew. It runs on a thread of the store and must not block.
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

/// Counts the commits that changed something. It only grows; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A lease: a promise to be heard of within its time to live. Keys bound to it go when it ends. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Bytes,
    /// The revision that created the key (the latest time that it was created).
    pub created: Revision,
    /// The revision of the last write.
    pub modified: Revision,
    /// The lease that it goes with, if it is bound to one.
    pub lease: Option<LeaseId>,
}

/// What a commit requires of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// What must hold.
    pub state: KeyState,
}

/// What may be required of a key.
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
        /// The lease that the key goes with.
        lease: Option<LeaseId>,
    },
    /// Removes a key. Nothing happens if there is none.
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

/// Writes that happen together, if all conditions hold. Conditions and writes are at most [`WRITES_MAX`] each and have
/// [`COMMIT_BYTES_MAX`] bytes in all; each key is written at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// What must hold.
    pub conditions: Vec<Condition>,
    /// What is written, in one revision.
    pub writes: Vec<Write>,
}

impl Commit {
    /// Sets one key.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::default().and_put(key, value, None)
    }

    /// Sets one key that goes when the lease ends.
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

    /// Whether carrying it out a second time changes nothing: it writes only keys that must be absent before.
    pub fn is_harmless_twice(&self) -> bool {
        let must_be_absent = |key: &String| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.key == *key && condition.state == KeyState::Absent)
        };
        self.writes.iter().all(|write| match write {
            Write::Put { key, .. } => must_be_absent(key),
            Write::Delete { .. } => false,
        })
    }

    /// The bytes of all keys and values that it writes.
    pub fn payload_bytes(&self) -> usize {
        self.writes.iter().map(Write::payload_bytes).sum()
    }

    /// Whether it keeps the limits and does not contradict itself: what every implementation refuses, whatever it holds.
    pub fn check(&self) -> Result<(), CoordinationError> {
        let invalid = |what: String| Err(CoordinationError::Invalid(what));
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

    /// Requires something of a key.
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

/// What can be asked of [`Coordination`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinationRequest {
    /// Makes a lease. Answered by [`CoordinationReply::Granted`].
    Grant {
        /// How long it lives after each sign of life; at least [`LEASE_TTL_MIN`].
        ttl: Duration,
    },
    /// Shows a sign of life. Answered by [`CoordinationReply::KeptAlive`].
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
        /// Only keys after this one, to go on where an earlier reply ended.
        after: Option<String>,
        /// The most entries wanted; [`RANGE_LIMIT_MAX`] and [`RANGE_BYTES_MAX`] limit them too.
        limit: u32,
    },
}

impl CoordinationRequest {
    /// Whether a good outcome changes what is kept over a restart. A sign of life does not.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            CoordinationRequest::Grant { .. } | CoordinationRequest::Revoke { .. } | CoordinationRequest::Commit(_)
        )
    }

    /// Tells a reply that this request can have from one that must be to another.
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

    /// The bytes that it carries in keys and values.
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
    /// The lease is there.
    Granted {
        /// Its id.
        lease: LeaseId,
        /// Its time to live, which may be longer than what was asked for.
        ttl: Duration,
    },
    /// The lease lives on.
    KeptAlive {
        /// Its time to live, counted from when the store got the request.
        ttl: Duration,
    },
    /// The lease is over.
    Revoked,
    /// The writes are durable.
    Committed {
        /// Their revision; the current one if they changed nothing.
        revision: Revision,
    },
    /// One key was read.
    Got {
        /// What it holds.
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
        /// There are more: go on after the last key.
        more: bool,
    },
}

/// One change that a watch saw.
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

/// Changes that a watch saw: never a part of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchBatch {
    /// The changes, ordered by revision.
    pub changes: Vec<Change>,
    /// All changes up to and including this revision have been delivered.
    pub revision: Revision,
}

/// Why [`Coordination`] did not do what was asked. Unless [`CoordinationError::Failed`] says otherwise, nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CoordinationError {
    /// A condition of a commit did not hold. Look at what is there, and decide again.
    #[error("`{key}` is not as the commit requires")]
    ConditionFailed {
        /// The first key whose condition failed.
        key: String,
        /// What that key holds.
        current: Option<Entry>,
    },
    /// There is no such lease (any more): its keys are gone. Grant a new one.
    #[error("the lease is unknown or over")]
    LeaseUnknown,
    /// A watch starts at changes that are no longer kept. Read again, and watch from there.
    #[error("changes before revision {} are no longer kept", oldest.0)]
    Compacted {
        /// The oldest revision that can be watched from.
        oldest: Revision,
    },
    /// The request breaks a limit or contradicts itself. Don't retry.
    #[error("not a valid request: {0}")]
    Invalid(String),
    /// The store failed; see there whether the request may have been applied.
    #[error(transparent)]
    Failed(#[from] StoreFailure),
}

impl CoordinationError {
    /// Whether the request may have taken effect although it failed.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, CoordinationError::Failed(failure) if failure.may_be_applied())
    }
}

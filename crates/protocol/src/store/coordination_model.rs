//! Reference model of coordination: revisions, leases and the history that watches read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use elastin_types::Time;

use super::{
    Change, Commit, CoordinationError, CoordinationReply, CoordinationRequest, Entry, KeyState, LEASE_TTL_MIN, LeaseId,
    RANGE_BYTES_MAX, RANGE_LIMIT_MAX, Revision, StoreFailure, WATCH_BATCH_CHANGES_MAX, WatchBatch, Write,
};

/// How many changes are kept for resuming watches. A watcher that falls further behind re-reads everything.
pub const HISTORY_CHANGES_MAX: usize = 16_384;
/// The most bytes of keys and values in the history.
const HISTORY_BYTES_MAX: usize = 64 << 20;
/// The most leases: a few for each node and client of a large cluster.
const LEASES_MAX: usize = 100_000;
/// The most keys: coordination holds none per actor.
const ENTRIES_MAX: usize = 1_000_000;

/// Durable part of a lease. The expiry is not stored, because a restarted store gives every lease its full time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// Its id.
    pub lease: LeaseId,
    /// Its time to live.
    pub ttl: Duration,
}

/// Keys and leases changed since the last [`CoordinationModel::take_touched`], for a durable store to persist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Keys that were put or deleted.
    pub keys: BTreeSet<String>,
    /// Leases that were granted or have ended.
    pub leases: BTreeSet<LeaseId>,
}

impl Touched {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.leases.is_empty()
    }
}

/// Reference semantics of [`CoordinationRequest`]s. Pure: time is passed in. Callers serve watches with
/// [`CoordinationModel::changes`] whenever the revision has grown.
#[derive(Debug)]
pub struct CoordinationModel {
    revision: Revision,
    last_lease: LeaseId,
    entries: BTreeMap<String, Entry>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Leases by expiry, so that the next one to expire is found without a search.
    ends: BTreeSet<(Time, LeaseId)>,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// INVARIANT: all changes of this and of later revisions are in the history.
    oldest: Revision,
    touched: Touched,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    until: Time,
    keys: BTreeSet<String>,
}

impl Default for CoordinationModel {
    fn default() -> Self {
        Self::restore(Time::ZERO, Revision(0), LeaseId(0), Vec::new(), Vec::new())
    }
}

impl CoordinationModel {
    /// Restores a model from durable data. Every lease lives for its full time from `now` on, and watches can't start at
    /// or before `revision`.
    ///
    /// # Panics
    /// If an entry is bound to a lease that is not in `leases`.
    pub fn restore(
        now: Time,
        revision: Revision,
        last_lease: LeaseId,
        entries: Vec<Entry>,
        leases: Vec<StoredLease>,
    ) -> Self {
        let mut model = Self {
            revision,
            last_lease,
            entries: BTreeMap::new(),
            leases: BTreeMap::new(),
            ends: BTreeSet::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            oldest: revision.next(),
            touched: Touched::default(),
        };
        for StoredLease { lease, ttl } in leases {
            model.start(now, lease, ttl);
        }
        for entry in entries {
            if let Some(lease) = entry.lease {
                let lease = model.leases.get_mut(&lease).expect("an entry's lease is kept with it");
                lease.keys.insert(entry.key.clone());
            }
            model.entries.insert(entry.key.clone(), entry);
        }
        model
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The last lease that was granted.
    pub fn last_lease(&self) -> LeaseId {
        self.last_lease
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// A lease, if it has not ended.
    pub fn lease(&self, lease: LeaseId) -> Option<StoredLease> {
        let ttl = self.leases.get(&lease)?.ttl;
        Some(StoredLease { lease, ttl })
    }

    /// The changes since this was last called.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// When the next lease expires, unless it is kept alive.
    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Ends the expired leases. Every request does this first.
    pub fn expire(&mut self, now: Time) {
        while let Some((until, lease)) = self.ends.first().copied()
            && until <= now
        {
            self.end(lease);
        }
    }

    /// Extends every lease, for a store that could not receive keep-alives for this long. Ending a lease late is always
    /// safe, because its holder counts from when it sent its last keep-alive.
    pub fn postpone_ends(&mut self, by: Duration) {
        let leases = self.leases.iter_mut();
        self.ends = leases
            .map(|(id, lease)| {
                lease.until = lease.until + by;
                (lease.until, *id)
            })
            .collect();
    }

    /// Executes one request at this time.
    pub fn handle(&mut self, now: Time, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        self.expire(now);
        match request {
            CoordinationRequest::Grant { ttl } => self.grant(now, ttl),
            CoordinationRequest::KeepAlive { lease } => self.keep_alive(now, lease),
            CoordinationRequest::Revoke { lease } => {
                self.check_lease(lease)?;
                self.end(lease);
                Ok(CoordinationReply::Revoked)
            }
            CoordinationRequest::Commit(commit) => self.commit(commit),
            CoordinationRequest::Get { key } => Ok(CoordinationReply::Got {
                entry: self.entries.get(&key).cloned(),
                revision: self.revision,
            }),
            CoordinationRequest::Range { prefix, after, limit } => Ok(self.range(&prefix, after.as_deref(), limit)),
        }
    }

    /// One batch of the changes of keys with this prefix, from revision `from` on. Continue after the batch's revision.
    pub fn changes(&self, prefix: &str, from: Revision) -> Result<WatchBatch, CoordinationError> {
        if from < self.oldest {
            return Err(CoordinationError::Compacted { oldest: self.oldest });
        }
        let first = self.history.partition_point(|change| change.revision() < from);
        let mut changes: Vec<Change> = Vec::new();
        let mut bytes = 0;
        for change in self.history.range(first..) {
            let full = changes.len() >= WATCH_BATCH_CHANGES_MAX || bytes >= RANGE_BYTES_MAX;
            if let Some(last) = changes.last().map(Change::revision)
                && full
                && last != change.revision()
            {
                return Ok(WatchBatch {
                    changes,
                    revision: last,
                });
            }
            if change.key().starts_with(prefix) {
                bytes += change_bytes(change);
                changes.push(change.clone());
            }
        }
        let revision = self.revision;
        Ok(WatchBatch { changes, revision })
    }

    fn grant(&mut self, now: Time, ttl: Duration) -> Result<CoordinationReply, CoordinationError> {
        if self.leases.len() >= LEASES_MAX {
            return Err(StoreFailure::Overloaded.into());
        }
        let ttl = ttl.max(LEASE_TTL_MIN);
        let lease = LeaseId(self.last_lease.0 + 1);
        self.last_lease = lease;
        self.start(now, lease, ttl);
        self.touched.leases.insert(lease);
        Ok(CoordinationReply::Granted { lease, ttl })
    }

    fn start(&mut self, now: Time, lease: LeaseId, ttl: Duration) {
        let until = now + ttl;
        let keys = BTreeSet::new();
        self.ends.insert((until, lease));
        self.leases.insert(lease, Lease { ttl, until, keys });
    }

    fn keep_alive(&mut self, now: Time, id: LeaseId) -> Result<CoordinationReply, CoordinationError> {
        let lease = self.leases.get_mut(&id).ok_or(CoordinationError::LeaseUnknown)?;
        self.ends.remove(&(lease.until, id));
        lease.until = now + lease.ttl;
        self.ends.insert((lease.until, id));
        Ok(CoordinationReply::KeptAlive { ttl: lease.ttl })
    }

    fn check_lease(&self, lease: LeaseId) -> Result<(), CoordinationError> {
        if self.leases.contains_key(&lease) {
            return Ok(());
        }
        Err(CoordinationError::LeaseUnknown)
    }

    /// Ends an existing lease and deletes its keys in one revision.
    fn end(&mut self, id: LeaseId) {
        let lease = self.leases.remove(&id).expect("only existing leases are ended");
        self.ends.remove(&(lease.until, id));
        self.touched.leases.insert(id);
        let writes = lease.keys.into_iter().map(|key| Write::Delete { key }).collect();
        self.apply(writes);
    }

    fn commit(&mut self, commit: Commit) -> Result<CoordinationReply, CoordinationError> {
        self.check(&commit)?;
        for condition in &commit.conditions {
            let current = self.entries.get(&condition.key);
            let holds = match condition.state {
                KeyState::Absent => current.is_none(),
                KeyState::Present => current.is_some(),
                KeyState::ModifiedAt(revision) => current.is_some_and(|entry| entry.modified == revision),
            };
            if !holds {
                return Err(CoordinationError::ConditionFailed {
                    key: condition.key.clone(),
                    current: current.cloned(),
                });
            }
        }
        self.apply(commit.writes);
        let revision = self.revision;
        Ok(CoordinationReply::Committed { revision })
    }

    /// Checks the limits of a commit and that its leases exist.
    fn check(&self, commit: &Commit) -> Result<(), CoordinationError> {
        commit.check()?;
        for write in &commit.writes {
            if let Write::Put { lease: Some(lease), .. } = write {
                self.check_lease(*lease)?;
            }
        }
        if self.entries.len() + commit.writes.len() > ENTRIES_MAX {
            return Err(StoreFailure::Overloaded.into());
        }
        Ok(())
    }

    /// Applies checked writes in one new revision. Creates no revision if they change nothing.
    fn apply(&mut self, writes: Vec<Write>) {
        let revision = self.revision.next();
        for write in writes {
            let change = match write {
                Write::Put { key, value, lease } => {
                    let created = self.entries.get(&key).map_or(revision, |entry| entry.created);
                    let modified = revision;
                    Change::Put(Entry {
                        key,
                        value,
                        created,
                        modified,
                        lease,
                    })
                }
                Write::Delete { key } if self.entries.contains_key(&key) => Change::Deleted { key, revision },
                Write::Delete { .. } => continue,
            };
            self.revision = revision;
            self.record(change);
        }
        self.compact();
    }

    fn record(&mut self, change: Change) {
        let key = change.key().to_owned();
        let before = match &change {
            Change::Put(entry) => self.entries.insert(key.clone(), entry.clone()),
            Change::Deleted { .. } => self.entries.remove(&key),
        };
        if let Some(lease) = before.and_then(|entry| entry.lease)
            && let Some(lease) = self.leases.get_mut(&lease)
        {
            lease.keys.remove(&key);
        }
        if let Change::Put(Entry { lease: Some(lease), .. }) = &change {
            let lease = self.leases.get_mut(lease).expect("a put's lease was checked");
            lease.keys.insert(key.clone());
        }
        self.touched.keys.insert(key);
        self.history_bytes += change_bytes(&change);
        self.history.push_back(change);
    }

    /// Compacts the oldest revisions when the history is too long, always whole ones.
    fn compact(&mut self) {
        while self.history.len() > HISTORY_CHANGES_MAX || self.history_bytes > HISTORY_BYTES_MAX {
            let revision = self.history[0].revision();
            while self.history.front().is_some_and(|change| change.revision() == revision) {
                let change = self.history.pop_front().expect("the front was just read");
                self.history_bytes -= change_bytes(&change);
            }
            self.oldest = revision.next();
        }
    }

    fn range(&self, prefix: &str, after: Option<&str>, limit: u32) -> CoordinationReply {
        let limit = limit.min(RANGE_LIMIT_MAX) as usize;
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut found = self
            .entries
            .range::<str, _>((from, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(|entry| entry.key.starts_with(prefix))
            .peekable();
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < limit && bytes < RANGE_BYTES_MAX {
            let Some(entry) = found.next() else { break };
            bytes += entry.payload_bytes();
            entries.push(entry.clone());
        }
        CoordinationReply::Entries {
            entries,
            revision: self.revision,
            more: found.peek().is_some(),
        }
    }
}

fn change_bytes(change: &Change) -> usize {
    match change {
        Change::Put(entry) => entry.payload_bytes(),
        Change::Deleted { key, .. } => key.len(),
    }
}

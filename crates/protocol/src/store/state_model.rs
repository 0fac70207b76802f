//! Reference model of the state store, over any tables that can hold its rows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

use super::{
    Expected, LockToken, SCAN_BYTES_MAX, SCAN_LIMIT_MAX, Space, StateError, StateReply, StateRequest, StoreFailure,
    ValueKey, Version, Versioned,
};

/// Ownership row of an actor. Separate from the state, because every write reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredActor {
    /// The highest epoch of any claim or write.
    pub epoch: ActivationEpoch,
    /// The node that claimed this epoch; `None` if a write without a claim raised it.
    pub claimer: Option<NodeId>,
}

/// A lock that was granted and not released. It may have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLock {
    /// The grant's fencing token.
    pub token: Version,
    /// Time to live of the last grant or renewal.
    pub ttl: Duration,
    /// When it expires.
    pub until: Time,
}

/// Row storage of a state store. A failure in the middle of a request must roll back the request's earlier changes, or
/// the tables must not be used any further.
pub trait StateTables {
    /// The ownership row of an actor, if it was ever claimed or saved.
    fn actor(&self, actor: &ActorId) -> Result<Option<StoredActor>, StoreFailure>;
    /// Replaces the ownership row of an actor. Such rows are never removed: they keep the epoch.
    fn set_actor(&mut self, actor: &ActorId, row: StoredActor) -> Result<(), StoreFailure>;
    /// An actor's state.
    fn state(&self, actor: &ActorId) -> Result<Option<Bytes>, StoreFailure>;
    /// Replaces or removes an actor's state.
    fn set_state(&mut self, actor: &ActorId, state: Option<Bytes>) -> Result<(), StoreFailure>;
    /// A shared value.
    fn value(&self, key: &ValueKey) -> Result<Option<Versioned>, StoreFailure>;
    /// Replaces or removes a shared value.
    fn set_value(&mut self, key: &ValueKey, value: Option<Versioned>) -> Result<(), StoreFailure>;
    /// Calls `row` with the values of a space in name order, from `from` up to but excluding `until`, until it returns
    /// `false`.
    fn scan(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        row: &mut dyn FnMut(Bytes, Versioned) -> bool,
    ) -> Result<(), StoreFailure>;
    /// A lock.
    fn lock(&self, key: &ValueKey) -> Result<Option<StoredLock>, StoreFailure>;
    /// Replaces or removes a lock.
    fn set_lock(&mut self, key: &ValueKey, lock: Option<StoredLock>) -> Result<(), StoreFailure>;
    /// A version higher than all before it.
    fn next_version(&mut self) -> Result<Version, StoreFailure>;
}

/// Reference semantics of [`StateRequest`]s. Pure: time is passed in, and the tables hold the rows.
///
/// INVARIANT: a rejected request changes nothing; all checks come before the first change.
#[derive(Debug, Default)]
pub struct StateModel<T> {
    tables: T,
}

impl<T: StateTables> StateModel<T> {
    /// A model over these tables.
    pub fn new(tables: T) -> Self {
        Self { tables }
    }

    /// Its tables.
    pub fn tables(&self) -> &T {
        &self.tables
    }

    /// Consumes the model and returns its tables.
    pub fn into_tables(self) -> T {
        self.tables
    }

    /// Executes one request at this time.
    pub fn handle(&mut self, now: Time, request: StateRequest) -> Result<StateReply, StateError> {
        request.check()?;
        match request {
            StateRequest::Claim { actor, epoch, claimer } => self.claim(&actor, epoch, claimer),
            StateRequest::Load { actor } => self.load(&actor),
            StateRequest::Save { actor, epoch, state } => {
                self.write(&actor, epoch, Some(state)).map(|()| StateReply::Saved)
            }
            StateRequest::Delete { actor, epoch } => self.write(&actor, epoch, None).map(|()| StateReply::Deleted),
            StateRequest::Get { key } => Ok(StateReply::Value(self.tables.value(&key)?)),
            StateRequest::Swap {
                key,
                expected,
                value,
                under,
            } => self.swap(now, &key, expected, value, under),
            StateRequest::Scan {
                space,
                from,
                until,
                limit,
            } => self.scan(space, &from, until.as_deref(), limit),
            StateRequest::Lock { key, ttl } => self.lock(now, &key, ttl),
            StateRequest::Renew { lock, ttl } => self.renew(now, &lock, ttl),
            StateRequest::Unlock { lock } => self.unlock(now, &lock),
        }
    }

    fn claim(&mut self, actor: &ActorId, epoch: ActivationEpoch, claimer: NodeId) -> Result<StateReply, StateError> {
        let stored = self.tables.actor(actor)?;
        if let Some(stored) = &stored {
            let repeated = stored.epoch == epoch && stored.claimer == Some(claimer);
            if stored.epoch >= epoch && !repeated {
                return Err(StateError::Fenced { stored: stored.epoch });
            }
        }
        // Read first: claiming an unreadable state would turn its error into "fenced" on the next attempt.
        let state = self.tables.state(actor)?;
        let claimer = Some(claimer);
        self.tables.set_actor(actor, StoredActor { epoch, claimer })?;
        Ok(StateReply::Claimed { state })
    }

    fn load(&self, actor: &ActorId) -> Result<StateReply, StateError> {
        let epoch = self.tables.actor(actor)?.map(|stored| stored.epoch);
        let state = self.tables.state(actor)?;
        Ok(StateReply::Loaded { epoch, state })
    }

    fn write(&mut self, actor: &ActorId, epoch: ActivationEpoch, state: Option<Bytes>) -> Result<(), StateError> {
        let stored = self.tables.actor(actor)?;
        if let Some(StoredActor { epoch: stored, .. }) = stored
            && stored > epoch
        {
            return Err(StateError::Fenced { stored });
        }
        if stored.is_none_or(|stored| stored.epoch < epoch) {
            self.tables.set_actor(actor, StoredActor { epoch, claimer: None })?;
        }
        Ok(self.tables.set_state(actor, state)?)
    }

    fn swap(
        &mut self,
        now: Time,
        key: &ValueKey,
        expected: Expected,
        value: Option<Bytes>,
        under: Option<LockToken>,
    ) -> Result<StateReply, StateError> {
        if let Some(lock) = &under {
            self.check_held(now, lock)?;
        }
        let current = self.tables.value(key)?.map(|current| current.version);
        let fits = match expected {
            Expected::Anything => true,
            Expected::Absent => current.is_none(),
            Expected::Version(version) => current == Some(version),
        };
        if !fits {
            return Err(StateError::Conflict { current });
        }
        let version = self.tables.next_version()?;
        let row = value.map(|value| Versioned { version, value });
        self.tables.set_value(key, row)?;
        Ok(StateReply::Swapped { version })
    }

    fn scan(&self, space: Space, from: &[u8], until: Option<&[u8]>, limit: u32) -> Result<StateReply, StateError> {
        let limit = limit.min(SCAN_LIMIT_MAX) as usize;
        let mut rows: Vec<(Bytes, Versioned)> = Vec::new();
        let mut bytes = 0;
        let mut more = false;
        self.tables.scan(space, from, until, &mut |name, row| {
            // Reads one row beyond the limit, to know whether there is more.
            more = rows.len() >= limit || bytes >= SCAN_BYTES_MAX;
            if !more {
                bytes += name.len() + row.value.len();
                rows.push((name, row));
            }
            !more
        })?;
        Ok(StateReply::Rows { rows, more })
    }

    fn lock(&mut self, now: Time, key: &ValueKey, ttl: Duration) -> Result<StateReply, StateError> {
        if let Some(lock) = self.tables.lock(key)?
            && lock.until > now
        {
            let remaining = lock.until.since(now);
            return Err(StateError::LockHeld { remaining });
        }
        let token = self.tables.next_version()?;
        self.hold(now, key, token, ttl)
    }

    fn renew(&mut self, now: Time, lock: &LockToken, ttl: Duration) -> Result<StateReply, StateError> {
        self.check_held(now, lock)?;
        self.hold(now, &lock.key, lock.token, ttl)
    }

    fn unlock(&mut self, now: Time, lock: &LockToken) -> Result<StateReply, StateError> {
        self.check_held(now, lock)?;
        self.tables.set_lock(&lock.key, None)?;
        Ok(StateReply::Unlocked)
    }

    fn hold(&mut self, now: Time, key: &ValueKey, token: Version, ttl: Duration) -> Result<StateReply, StateError> {
        let until = now + ttl;
        self.tables.set_lock(key, Some(StoredLock { token, ttl, until }))?;
        Ok(StateReply::Locked { token })
    }

    /// Checks that the lock is held under this token and has not expired.
    fn check_held(&self, now: Time, lock: &LockToken) -> Result<(), StateError> {
        match self.tables.lock(&lock.key)? {
            Some(stored) if stored.token == lock.token && stored.until > now => Ok(()),
            _ => Err(StateError::LockLost),
        }
    }
}

/// In-memory tables of the memory store and the simulator.
#[derive(Debug, Default)]
pub struct MemoryTables {
    actors: BTreeMap<ActorId, StoredActor>,
    states: BTreeMap<ActorId, Bytes>,
    values: BTreeMap<ValueKey, Versioned>,
    locks: BTreeMap<ValueKey, StoredLock>,
    last_version: Version,
}

impl StateTables for MemoryTables {
    fn actor(&self, actor: &ActorId) -> Result<Option<StoredActor>, StoreFailure> {
        Ok(self.actors.get(actor).copied())
    }

    fn set_actor(&mut self, actor: &ActorId, row: StoredActor) -> Result<(), StoreFailure> {
        self.actors.insert(actor.clone(), row);
        Ok(())
    }

    fn state(&self, actor: &ActorId) -> Result<Option<Bytes>, StoreFailure> {
        Ok(self.states.get(actor).cloned())
    }

    fn set_state(&mut self, actor: &ActorId, state: Option<Bytes>) -> Result<(), StoreFailure> {
        replace(&mut self.states, actor, state);
        Ok(())
    }

    fn value(&self, key: &ValueKey) -> Result<Option<Versioned>, StoreFailure> {
        Ok(self.values.get(key).cloned())
    }

    fn set_value(&mut self, key: &ValueKey, value: Option<Versioned>) -> Result<(), StoreFailure> {
        replace(&mut self.values, key, value);
        Ok(())
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        row: &mut dyn FnMut(Bytes, Versioned) -> bool,
    ) -> Result<(), StoreFailure> {
        let first = ValueKey {
            space,
            name: Bytes::copy_from_slice(from),
        };
        self.values
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(|(key, _)| key.space == space && until.is_none_or(|until| key.name[..] < *until))
            .all(|(key, value)| row(key.name.clone(), value.clone()));
        Ok(())
    }

    fn lock(&self, key: &ValueKey) -> Result<Option<StoredLock>, StoreFailure> {
        Ok(self.locks.get(key).copied())
    }

    fn set_lock(&mut self, key: &ValueKey, lock: Option<StoredLock>) -> Result<(), StoreFailure> {
        replace(&mut self.locks, key, lock);
        Ok(())
    }

    fn next_version(&mut self) -> Result<Version, StoreFailure> {
        self.last_version.0 += 1;
        Ok(self.last_version)
    }
}

fn replace<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
}

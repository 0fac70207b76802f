//! The rows of a state store in redb tables, within one transaction.

use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::store::{
    Space, StateTables, StoreFailure, StoredActor, StoredLock, ValueKey, Version, Versioned,
};
use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};
use redb::{ReadableTable, Table, TableDefinition, TableHandle, WriteTransaction};

use super::file::{failure, storage_failure};
use super::row;
use crate::keys;

type Rows<'t> = Table<'t, &'static [u8], &'static [u8]>;

const ACTORS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("actors");
const STATES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("states");
const VALUES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("values");
const LOCKS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("locks");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// The last assigned version, in [`NUMBERS`].
const LAST_VERSION: &str = "last_version";

/// The tables of one transaction.
pub(crate) struct RedbTables<'t> {
    actors: Rows<'t>,
    states: Rows<'t>,
    values: Rows<'t>,
    locks: Rows<'t>,
    numbers: Table<'t, &'static str, u64>,
    /// Whether the transaction changed anything.
    changed: bool,
    /// The first failed write. The transaction must not be committed then: the write may be partial.
    broken: Option<StoreFailure>,
}

impl<'t> RedbTables<'t> {
    pub(crate) fn open(transaction: &'t WriteTransaction) -> Result<Self, StoreFailure> {
        let rows = |definition| {
            transaction
                .open_table(definition)
                .map_err(|error| failure(error.into()))
        };
        Ok(Self {
            actors: rows(ACTORS)?,
            states: rows(STATES)?,
            values: rows(VALUES)?,
            locks: rows(LOCKS)?,
            numbers: transaction.open_table(NUMBERS).map_err(|error| failure(error.into()))?,
            changed: false,
            broken: None,
        })
    }

    /// Whether there is anything to commit; an error if the transaction must not be committed.
    pub(crate) fn finish(self) -> Result<bool, StoreFailure> {
        match self.broken {
            Some(failure) => Err(failure),
            None => Ok(self.changed),
        }
    }

    /// Gives every lock its full time to live from now on: the time that passed before a restart is unknown.
    pub(crate) fn restart_locks(&mut self, now: Time) -> Result<(), StoreFailure> {
        let mut restarted = Vec::new();
        for found in self.locks.iter().map_err(storage_failure)? {
            let (key, value) = found.map_err(storage_failure)?;
            // A damaged lock fails the requests that need it, not the restart.
            if let Ok(lock) = row::decode::<LockRow>(self.locks.name(), key.value(), value.value()) {
                let until = (now + lock.ttl).0;
                restarted.push((key.value().to_vec(), LockRow { until, ..lock }));
            }
        }
        for (key, lock) in restarted {
            let row = row::encode(&key, &lock);
            self.locks
                .insert(key.as_slice(), row.as_slice())
                .map_err(storage_failure)?;
            self.changed = true;
        }
        Ok(())
    }

    /// Records the outcome of a write.
    fn record_write<R>(&mut self, result: Result<R, redb::StorageError>) -> Result<(), StoreFailure> {
        self.changed = true;
        match result {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = storage_failure(error);
                self.broken.get_or_insert(failure.clone());
                Err(failure)
            }
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct ActorRow {
    epoch: ActivationEpoch,
    claimer: Option<NodeId>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct LockRow {
    token: u64,
    ttl: Duration,
    until: u64,
}

/// Reads and decodes a row.
fn read<V>(
    table: &Rows<'_>,
    key: &[u8],
    decode: impl FnOnce(&str, &[u8], &[u8]) -> Result<V, StoreFailure>,
) -> Result<Option<V>, StoreFailure> {
    match table.get(key).map_err(storage_failure)? {
        Some(row) => decode(table.name(), key, row.value()).map(Some),
        None => Ok(None),
    }
}

/// Sets or removes a row.
fn write(table: &mut Rows<'_>, key: &[u8], row: Option<Vec<u8>>) -> Result<(), redb::StorageError> {
    match row {
        Some(row) => table.insert(key, row.as_slice()).map(drop),
        None => table.remove(key).map(drop),
    }
}

impl StateTables for RedbTables<'_> {
    fn actor(&self, actor: &ActorId) -> Result<Option<StoredActor>, StoreFailure> {
        let row = read(&self.actors, &keys::actor_key(actor), row::decode::<ActorRow>)?;
        Ok(row.map(|ActorRow { epoch, claimer }| StoredActor { epoch, claimer }))
    }

    fn set_actor(&mut self, actor: &ActorId, stored: StoredActor) -> Result<(), StoreFailure> {
        let StoredActor { epoch, claimer } = stored;
        let key = keys::actor_key(actor);
        let row = row::encode(&key, &ActorRow { epoch, claimer });
        let result = write(&mut self.actors, &key, Some(row));
        self.record_write(result)
    }

    fn state(&self, actor: &ActorId) -> Result<Option<Bytes>, StoreFailure> {
        read(&self.states, &keys::actor_key(actor), row::content)
    }

    fn set_state(&mut self, actor: &ActorId, state: Option<Bytes>) -> Result<(), StoreFailure> {
        let key = keys::actor_key(actor);
        let row = state.map(|state| row::seal(&key, &state));
        let result = write(&mut self.states, &key, row);
        self.record_write(result)
    }

    fn value(&self, key: &ValueKey) -> Result<Option<Versioned>, StoreFailure> {
        read(&self.values, &keys::value_key(key), row::decode)
    }

    fn set_value(&mut self, key: &ValueKey, value: Option<Versioned>) -> Result<(), StoreFailure> {
        let key = keys::value_key(key);
        let row = value.map(|value| row::encode(&key, &value));
        let result = write(&mut self.values, &key, row);
        self.record_write(result)
    }

    fn scan(
        &self,
        space: Space,
        from: &[u8],
        until: Option<&[u8]>,
        accept: &mut dyn FnMut(Bytes, Versioned) -> bool,
    ) -> Result<(), StoreFailure> {
        let prefix = keys::space_prefix(space);
        let first = [prefix.as_slice(), from].concat();
        for found in self.values.range(first.as_slice()..).map_err(storage_failure)? {
            let (key, value) = found.map_err(storage_failure)?;
            let key = key.value();
            let Some(name) = key.strip_prefix(prefix.as_slice()) else {
                break;
            };
            if until.is_some_and(|until| name >= until) {
                break;
            }
            let value = row::decode(self.values.name(), key, value.value())?;
            if !accept(Bytes::copy_from_slice(name), value) {
                break;
            }
        }
        Ok(())
    }

    fn lock(&self, key: &ValueKey) -> Result<Option<StoredLock>, StoreFailure> {
        let row = read(&self.locks, &keys::value_key(key), row::decode::<LockRow>)?;
        Ok(row.map(|row| StoredLock {
            token: Version(row.token),
            ttl: row.ttl,
            until: Time(row.until),
        }))
    }

    fn set_lock(&mut self, key: &ValueKey, lock: Option<StoredLock>) -> Result<(), StoreFailure> {
        let key = keys::value_key(key);
        let row = lock.map(|StoredLock { token, ttl, until }| {
            let (token, until) = (token.0, until.0);
            row::encode(&key, &LockRow { token, ttl, until })
        });
        let result = write(&mut self.locks, &key, row);
        self.record_write(result)
    }

    fn next_version(&mut self) -> Result<Version, StoreFailure> {
        let last = self.numbers.get(LAST_VERSION).map_err(storage_failure)?;
        let next = last.map_or(0, |last| last.value()) + 1;
        let result = self.numbers.insert(LAST_VERSION, next).map(drop);
        self.record_write(result)?;
        Ok(Version(next))
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorType, SlotEpoch};
    use redb::Database;
    use redb::backends::InMemoryBackend;

    use super::*;

    fn content(table: &Rows<'_>, key: &[u8]) -> String {
        let row = table.get(key).unwrap().unwrap();
        let content = row::unseal(table.name(), key, row.value()).unwrap();
        content.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn rows_are_a_format() {
        // A change here needs a new format number and code that still reads the old one.
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut tables = RedbTables::open(&transaction).unwrap();
        let actor = ActorId::new(ActorType::of("Folder"), 7);
        let slot = SlotEpoch(1);
        let epoch = ActivationEpoch { slot, counter: 300 };
        let claimer = Some(NodeId(5));
        tables.set_actor(&actor, StoredActor { epoch, claimer }).unwrap();
        tables.set_state(&actor, Some("state".into())).unwrap();
        let name = "name".into();
        let space = Space::System;
        let key = ValueKey { space, name };
        let version = tables.next_version().unwrap();
        let value = Some(Versioned {
            version,
            value: "value".into(),
        });
        tables.set_value(&key, value).unwrap();
        let lock = Some(StoredLock {
            token: Version(2),
            ttl: Duration::from_millis(1500),
            until: Time(9),
        });
        tables.set_lock(&key, lock).unwrap();

        let actor = keys::actor_key(&actor);
        assert_eq!(content(&tables.actors, &actor), "01ac020105");
        assert_eq!(content(&tables.states, &actor), "7374617465");
        let key = keys::value_key(&key);
        assert_eq!(content(&tables.values, &key), "010576616c7565");
        assert_eq!(content(&tables.locks, &key), "020180cab5ee0109");
    }
}

//! Coordination in a file: the model is in memory, and every change is written to the file before it is acknowledged.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use elastin_clock::Clock;
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Done, Entry, LeaseId,
    Revision, StoreFailure, StoredLease, Touched, WatchGuard, WatchSink,
};
use elastin_types::Time;
use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use super::OpenError;
use super::file::{End, StoreFile, failure, storage_failure};
use super::row;
use crate::coordination_engine::{CoordinationEngine, Journal};
use crate::local_coordination::LocalCoordination;

const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
const LEASES: TableDefinition<u64, u64> = TableDefinition::new("leases");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// The last revision, in [`NUMBERS`].
const REVISION: &str = "revision";
/// The last granted lease, in [`NUMBERS`].
const LAST_LEASE: &str = "last_lease";

/// Coordination in a file. Keep-alives are not written: after a restart every lease lives for its full time to live,
/// and watches can't resume from a revision before the restart. Dropping it completes the submitted requests and
/// closes the file.
pub struct EmbeddedCoordination {
    local: LocalCoordination,
}

impl EmbeddedCoordination {
    /// Opens the file, or creates it if it does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        Self::start(StoreFile::open(path)?, &path.display().to_string())
    }

    pub(super) fn start(file: StoreFile, path: &str) -> Result<Self, OpenError> {
        let engine = CoordinationEngine::load(file).map_err(|failure| OpenError::Failed {
            path: path.to_owned(),
            failure,
        })?;
        let local = LocalCoordination::start("coord-file", Clock::start(), engine);
        Ok(Self { local })
    }
}

impl Coordination for EmbeddedCoordination {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        self.local.submit(request, done);
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        self.local.watch(prefix, from, sink)
    }
}

struct Tables<'t> {
    entries: Table<'t, &'static [u8], &'static [u8]>,
    leases: Table<'t, u64, u64>,
    numbers: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self, StoreFailure> {
        let failed = |error: redb::TableError| failure(error.into());
        Ok(Self {
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            leases: transaction.open_table(LEASES).map_err(failed)?,
            numbers: transaction.open_table(NUMBERS).map_err(failed)?,
        })
    }

    fn number(&self, name: &str) -> Result<u64, StoreFailure> {
        let row = self.numbers.get(name).map_err(storage_failure)?;
        Ok(row.map_or(0, |row| row.value()))
    }

    fn leases(&self) -> Result<Vec<StoredLease>, StoreFailure> {
        let mut leases = Vec::new();
        for found in self.leases.iter().map_err(storage_failure)? {
            let (lease, ttl) = found.map_err(storage_failure)?;
            leases.push(StoredLease {
                lease: LeaseId(lease.value()),
                ttl: Duration::from_nanos(ttl.value()),
            });
        }
        Ok(leases)
    }

    fn entries(&self) -> Result<Vec<Entry>, StoreFailure> {
        let mut entries = Vec::new();
        for found in self.entries.iter().map_err(storage_failure)? {
            let (key, value) = found.map_err(storage_failure)?;
            entries.push(row::decode("entries", key.value(), value.value())?);
        }
        Ok(entries)
    }

    fn write_entry(&mut self, key: &str, entry: Option<&Entry>) -> Result<(), redb::StorageError> {
        let key = key.as_bytes();
        match entry {
            Some(entry) => self.entries.insert(key, row::encode(key, entry).as_slice()).map(drop),
            None => self.entries.remove(key).map(drop),
        }
    }

    fn write_lease(&mut self, lease: LeaseId, stored: Option<StoredLease>) -> Result<(), redb::StorageError> {
        match stored {
            Some(StoredLease { ttl, .. }) => self.leases.insert(lease.0, nanos(ttl)).map(drop),
            None => self.leases.remove(lease.0).map(drop),
        }
    }

    fn write(&mut self, model: &CoordinationModel, touched: &Touched) -> Result<(), redb::StorageError> {
        for key in &touched.keys {
            self.write_entry(key, model.entry(key))?;
        }
        for lease in &touched.leases {
            self.write_lease(*lease, model.lease(*lease))?;
        }
        self.numbers.insert(REVISION, model.revision().0)?;
        self.numbers.insert(LAST_LEASE, model.last_lease().0)?;
        Ok(())
    }
}

fn nanos(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX)
}

impl Journal for StoreFile {
    fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure> {
        self.transact(|transaction| {
            let tables = Tables::open(transaction)?;
            let (entries, leases) = (tables.entries()?, tables.leases()?);
            let known: BTreeSet<LeaseId> = leases.iter().map(|stored| stored.lease).collect();
            let lost = |entry: &&Entry| entry.lease.is_some_and(|lease| !known.contains(&lease));
            if let Some(entry) = entries.iter().find(lost) {
                let reason = format!("the lease of `{}` is missing", entry.key);
                return Err(StoreFailure::Corrupt { reason });
            }
            let revision = Revision(tables.number(REVISION)?);
            let last_lease = LeaseId(tables.number(LAST_LEASE)?);
            let model = CoordinationModel::restore(now, revision, last_lease, entries, leases);
            Ok((model, End::Discard))
        })
    }

    fn persist(&mut self, model: &CoordinationModel, touched: &Touched) -> Result<(), StoreFailure> {
        self.transact(|transaction| {
            let mut tables = Tables::open(transaction)?;
            tables.write(model, touched).map_err(storage_failure)?;
            Ok(((), End::Commit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_a_format() {
        // A change here needs a new format number and code that still reads the old one.
        let entry = Entry {
            key: "key".to_owned(),
            value: "value".into(),
            created: Revision(1),
            modified: Revision(300),
            lease: Some(LeaseId(5)),
        };
        let row = row::encode(b"key", &entry);
        let content = row::unseal("entries", b"key", &row).unwrap();
        let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "036b65790576616c756501ac020105");
    }
}

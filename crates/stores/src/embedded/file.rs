//! One redb file: opening it, transactions with a definite outcome, and the translation of its errors.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use elastin_protocol::store::StoreFailure;
use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};

/// Metadata of the file itself.
const FILE: TableDefinition<&str, u64> = TableDefinition::new("file");
/// The format of all tables, in [`FILE`].
const FORMAT: &str = "format";
/// The format that this version writes.
const FORMAT_NUMBER: u64 = 1;
/// The number of commits, in [`FILE`]: shows after a failed commit whether it was applied.
const COMMITS: &str = "commits";
/// Size of redb's cache. The stores' working sets are small, and the operating system caches the rest of the file.
const CACHE_BYTES: usize = 64 << 20;

/// The reason why a store's file can't be opened. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("`{path}` is in use by another process")]
    InUse {
        /// The file.
        path: String,
    },
    /// The file was written by another version of Elastin.
    #[error("`{path}` has format {found}, and this version of Elastin reads format {FORMAT_NUMBER}")]
    Format {
        /// The file.
        path: String,
        /// The format that it has.
        found: u64,
    },
    /// The file or its disk fails; the reason shows whether a retry is useful.
    #[error("`{path}` can't be opened: {failure}")]
    Failed {
        /// The file.
        path: String,
        /// The failure.
        failure: StoreFailure,
    },
}

/// Opens the database; called again after a failure that redb can't continue from.
pub(crate) type Opener = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>;

/// The end of a transaction.
pub(crate) enum End {
    /// Make the changes durable.
    Commit,
    /// Nothing was changed.
    Discard,
}

/// A store's file.
pub(crate) struct StoreFile {
    open: Opener,
    /// `None` after a failure, until the next transaction opens it again.
    database: Option<Database>,
    commits: u64,
}

impl StoreFile {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let owned = path.to_owned();
        let open = move || {
            let existed = owned.exists();
            let database = builder().create(&owned)?;
            if !existed {
                sync_directory(&owned).map_err(redb::StorageError::Io)?;
            }
            Ok(database)
        };
        Self::open_with(&path.display().to_string(), Box::new(open))
    }

    /// Like [`StoreFile::open`], with a custom opener.
    pub(crate) fn open_with(path: &str, open: Opener) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let database = match guarded(&open) {
            Ok(Ok(database)) => database,
            Ok(Err(redb::DatabaseError::DatabaseAlreadyOpen)) => return Err(OpenError::InUse { path }),
            Ok(Err(error)) => {
                let failure = failure(error.into());
                return Err(OpenError::Failed { path, failure });
            }
            Err(failure) => return Err(OpenError::Failed { path, failure }),
        };
        let mut file = Self {
            open,
            database: Some(database),
            commits: 0,
        };
        match file.check_format() {
            Ok(FORMAT_NUMBER) => Ok(file),
            Ok(found) => Err(OpenError::Format { path, found }),
            Err(failure) => Err(OpenError::Failed { path, failure }),
        }
    }

    /// Returns the format of the file; a new file gets the current one.
    fn check_format(&mut self) -> Result<u64, StoreFailure> {
        let (format, commits) = self.transact(|transaction| {
            let mut table = transaction.open_table(FILE).map_err(|error| failure(error.into()))?;
            let format = number(&table, FORMAT)?;
            if format.is_none() {
                table.insert(FORMAT, FORMAT_NUMBER).map_err(storage_failure)?;
            }
            let commits = number(&table, COMMITS)?.unwrap_or(0);
            let end = if format.is_none() { End::Commit } else { End::Discard };
            Ok(((format.unwrap_or(FORMAT_NUMBER), commits), end))
        })?;
        // The commit that wrote the format has counted itself from zero.
        self.commits = self.commits.max(commits);
        Ok(format)
    }

    /// Runs `work` in a transaction. After an error the file is unchanged, unless the failure says otherwise.
    pub(crate) fn transact<R>(
        &mut self,
        work: impl FnOnce(&WriteTransaction) -> Result<(R, End), StoreFailure>,
    ) -> Result<R, StoreFailure> {
        let database = match self.database.take() {
            Some(database) => database,
            None => guarded(&self.open)?.map_err(|error| failure(error.into()))?,
        };
        // A damaged file can make redb panic anywhere, so every access is guarded. If the work fails, the transaction
        // and the database are dropped: redb refuses to continue after a failed write, and reopens in a good state.
        let (transaction, result, end) = guarded(|| {
            let transaction = database.begin_write().map_err(|error| failure(error.into()))?;
            let (result, end) = work(&transaction)?;
            Ok((transaction, result, end))
        })
        .flatten()?;
        match end {
            End::Discard => guarded(|| transaction.abort().map_err(storage_failure)).flatten()?,
            End::Commit => {
                if let Err(failure) = guarded(|| commit(transaction, self.commits + 1)).flatten() {
                    drop(database);
                    return Err(self.settle(failure));
                }
                self.commits += 1;
            }
        }
        self.database = Some(database);
        Ok(result)
    }

    /// Determines whether a failed commit was applied after all.
    fn settle(&mut self, failure: StoreFailure) -> StoreFailure {
        let found = self.transact(|transaction| {
            let table = transaction
                .open_table(FILE)
                .map_err(|error| self::failure(error.into()))?;
            Ok((number(&table, COMMITS)?.unwrap_or(0), End::Discard))
        });
        let doubt = match found {
            Ok(commits) if commits == self.commits => return failure,
            Ok(commits) => {
                self.commits = commits;
                "the commit is visible in the file but may not be durable"
            }
            Err(_) => "the file can't be read to find out whether the commit was applied",
        };
        let reason = format!("{failure}; {doubt}");
        StoreFailure::Interrupted { reason }
    }
}

fn commit(transaction: WriteTransaction, number: u64) -> Result<(), StoreFailure> {
    {
        let mut table = transaction.open_table(FILE).map_err(|error| failure(error.into()))?;
        table.insert(COMMITS, number).map_err(storage_failure)?;
    }
    transaction.commit().map_err(|error| failure(error.into()))
}

fn number(table: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<Option<u64>, StoreFailure> {
    let row = table.get(name).map_err(storage_failure)?;
    Ok(row.map(|row| row.value()))
}

pub(crate) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Makes the directory entry of a new file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::File::open(directory)?.sync_all()
}

/// Turns a panic of redb, its reaction to some kinds of damage, into a failure.
fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, StoreFailure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        let reason = format!("redb panicked while accessing the file: {message}");
        StoreFailure::Corrupt { reason }
    })
}

/// Translates an error of redb for the callers of a store.
pub(crate) fn failure(error: redb::Error) -> StoreFailure {
    match error {
        redb::Error::Io(error) => io_failure(&error),
        redb::Error::Corrupted(reason) => StoreFailure::Corrupt { reason },
        other => StoreFailure::Io {
            reason: other.to_string(),
        },
    }
}

/// Like [`failure`], for errors of reading and writing rows.
pub(crate) fn storage_failure(error: redb::StorageError) -> StoreFailure {
    failure(error.into())
}

fn io_failure(error: &io::Error) -> StoreFailure {
    use io::ErrorKind;
    let reason = error.to_string();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StoreFailure::DiskFull,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreFailure::ReadOnly { reason },
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => StoreFailure::Corrupt { reason },
        _ => StoreFailure::Io { reason },
    }
}

//! The embedded stores on failing disks: a refused write is never applied, an acknowledged one stays.

use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::conformance::{coordination_scripts, state_scripts};
use elastin_protocol::store::{
    Commit, CoordinationError, CoordinationReply, CoordinationRequest, Revision, StateError, StateReply, StateRequest,
    StateStore, StoreFailure,
};
use elastin_types::{ActivationEpoch, ActorId, ActorType};
use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::file::{Opener, StoreFile, builder};
use super::{EmbeddedCoordination, EmbeddedState};
use crate::blocking::{CoordinationUnderTest, StateUnderTest, Watching, ask_coordination, ask_state};

/// The current fault of the disk.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The file can't grow; existing pages can be written.
    Full,
    /// Every write and sync ends with this error.
    Broken(io::ErrorKind),
    /// Every sync takes this long.
    Slow(Duration),
}

type CurrentFault = Arc<Mutex<Option<Fault>>>;

/// A file whose writes can be made to fail.
#[derive(Debug)]
struct FaultyDisk {
    file: FileBackend,
    fault: CurrentFault,
}

impl FaultyDisk {
    /// Fails if the disk rejects a write that ends here.
    fn check(&self, end: u64) -> io::Result<()> {
        match *self.fault.lock() {
            Some(Fault::Full) if end > self.file.len()? => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Broken(kind)) => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check(len)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check(0)?;
        let fault = *self.fault.lock();
        if let Some(Fault::Slow(time)) = fault {
            std::thread::sleep(time);
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset + data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

fn opener(path: &Path, fault: &CurrentFault) -> Opener {
    let (path, fault) = (path.to_owned(), fault.clone());
    Box::new(move || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(redb::StorageError::Io)?;
        let file = FileBackend::new(file)?;
        let fault = fault.clone();
        builder().create_with_backend(FaultyDisk { file, fault })
    })
}

fn faulty_file(path: &Path, fault: &CurrentFault) -> StoreFile {
    StoreFile::open_with("faulty", opener(path, fault)).unwrap()
}

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn save(key: u64, state: &str) -> StateRequest {
    StateRequest::Save {
        actor: actor(key),
        epoch: ActivationEpoch::default(),
        state: state.to_owned().into(),
    }
}

fn loaded(state: Option<&str>) -> Result<StateReply, StateError> {
    Ok(StateReply::Loaded {
        epoch: state.map(|_| ActivationEpoch::default()),
        state: state.map(|state| state.to_owned().into()),
    })
}

fn load(store: &dyn StateStore, key: u64) -> Result<StateReply, StateError> {
    ask_state(store, StateRequest::Load { actor: actor(key) })
}

struct Setup {
    directory: tempfile::TempDir,
    fault: CurrentFault,
    store: EmbeddedState,
}

/// A store with one saved state, on a disk that then fails.
fn broken(fault: Fault) -> Setup {
    let directory = tempfile::tempdir().unwrap();
    let current = CurrentFault::default();
    let file = faulty_file(&directory.path().join("state"), &current);
    let store = EmbeddedState::start(file, "faulty").unwrap();
    assert_eq!(ask_state(&store, save(1, "before")), Ok(StateReply::Saved));
    *current.lock() = Some(fault);
    Setup {
        directory,
        fault: current,
        store,
    }
}

/// Once the disk works again, so does the store, with everything it acknowledged.
fn check_recovery(setup: Setup) {
    *setup.fault.lock() = None;
    assert_eq!(load(&setup.store, 1), loaded(Some("before")));
    assert_eq!(ask_state(&setup.store, save(2, "after")), Ok(StateReply::Saved));
    drop(setup.store);
    let store = EmbeddedState::open(setup.directory.path().join("state")).unwrap();
    assert_eq!(load(&store, 1), loaded(Some("before")));
    assert_eq!(load(&store, 2), loaded(Some("after")));
    assert_eq!(load(&store, 3), loaded(None));
}

fn failure(result: Result<StateReply, StateError>) -> StoreFailure {
    match result {
        Err(StateError::Failed(failure)) => failure,
        other => panic!("a request on a failing disk ended with {other:?}"),
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let setup = broken(Fault::Full);
    // Larger than the free space within the file.
    let large = "x".repeat(8 << 20);
    for _ in 0..3 {
        assert_eq!(
            failure(ask_state(&setup.store, save(3, &large))),
            StoreFailure::DiskFull
        );
        assert_eq!(load(&setup.store, 1), loaded(Some("before")), "reads still succeed");
    }
    check_recovery(setup);
}

/// On a disk that rejects every write, the first outcome may be unknown, and all later writes are refused.
fn check_broken(kind: io::ErrorKind, expected: impl Fn(&StoreFailure) -> bool) {
    let setup = broken(Fault::Broken(kind));
    let first = failure(ask_state(&setup.store, save(3, "lost")));
    assert!(expected(&first) || first.may_be_applied(), "{kind:?} became {first:?}");
    for _ in 0..3 {
        let next = failure(ask_state(&setup.store, save(3, "lost")));
        assert!(expected(&next), "{kind:?} became {next:?}");
    }
    check_recovery(setup);
}

#[test]
fn a_read_only_disk_refuses_writes() {
    check_broken(io::ErrorKind::ReadOnlyFilesystem, |failure| {
        matches!(failure, StoreFailure::ReadOnly { .. })
    });
}

#[test]
fn a_failing_disk_refuses_writes() {
    check_broken(io::ErrorKind::Other, |failure| {
        matches!(failure, StoreFailure::Io { .. })
    });
}

#[test]
fn coordination_on_a_full_disk_reverts_to_the_persisted_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordination");
    let fault = CurrentFault::default();
    let store = EmbeddedCoordination::start(faulty_file(&path, &fault), "faulty").unwrap();
    let revision = Revision(1);
    assert_eq!(
        ask_coordination(&store, Commit::put("a", "1")),
        Ok(CoordinationReply::Committed { revision })
    );
    let watching = Watching::start(&store, "a", revision.next());

    *fault.lock() = Some(Fault::Broken(io::ErrorKind::StorageFull));
    let refused = ask_coordination(&store, Commit::put("a", "lost"));
    assert!(
        matches!(
            &refused,
            Err(CoordinationError::Failed(
                StoreFailure::DiskFull | StoreFailure::Interrupted { .. }
            ))
        ),
        "a write on a full disk ended with {refused:?}"
    );

    *fault.lock() = None;
    let Ok(CoordinationReply::Got { entry, revision: read }) =
        ask_coordination(&store, CoordinationRequest::Get { key: "a".to_owned() })
    else {
        panic!("the key can't be read")
    };
    assert_eq!((entry.unwrap().value.as_ref(), read), (&b"1"[..], revision));
    let revision = Revision(2);
    assert_eq!(
        ask_coordination(&store, Commit::put("a", "2")),
        Ok(CoordinationReply::Committed { revision })
    );
    // The watch never saw the refused write.
    let batch = watching.next().unwrap();
    assert_eq!(batch.changes.len(), 1);
    assert_eq!(batch.revision, revision);
}

/// The duration of a sync on a slow disk.
const SLOW: Duration = Duration::from_millis(10);

#[test]
fn conformance_scripts_pass_on_a_slow_disk() {
    let directory = tempfile::tempdir().unwrap();
    let fault = CurrentFault::default();
    let file = |name: &str| faulty_file(&directory.path().join(name), &fault);
    let state = EmbeddedState::start(file("state"), "faulty").unwrap();
    let coordination = EmbeddedCoordination::start(file("coordination"), "faulty").unwrap();
    *fault.lock() = Some(Fault::Slow(SLOW));
    let mut subject = StateUnderTest(Arc::new(state));
    for script in state_scripts() {
        script.run(&mut subject).unwrap();
    }
    let mut subject = CoordinationUnderTest::new(Arc::new(coordination));
    for script in coordination_scripts() {
        script.run(&mut subject).unwrap();
    }
}

//! The embedded stores after a restart, and their errors on files that were changed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use elastin_protocol::store::{
    Commit, CoordinationError, CoordinationReply, CoordinationRequest, Expected, LockToken, Revision, Space,
    StateError, StateReply, StateRequest, StoreFailure, ValueKey, Version,
};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState, OpenError};
use elastin_types::{ActivationEpoch, ActorId, ActorType, NodeId, SlotEpoch};

use crate::blocking::{Watching, ask_coordination, ask_state};

const LONG: Duration = Duration::from_secs(600);

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn epoch(counter: u32) -> ActivationEpoch {
    let slot = SlotEpoch(1);
    ActivationEpoch { slot, counter }
}

fn save(key: u64, state: impl Into<Vec<u8>>) -> StateRequest {
    StateRequest::Save {
        actor: actor(key),
        epoch: epoch(1),
        state: state.into().into(),
    }
}

fn load(key: u64) -> StateRequest {
    StateRequest::Load { actor: actor(key) }
}

fn value_key() -> ValueKey {
    let (space, name) = (Space::System, "name".into());
    ValueKey { space, name }
}

#[test]
fn state_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let swap = |expected| StateRequest::Swap {
        key: value_key(),
        expected,
        value: Some("value".into()),
        under: None,
    };
    let store = EmbeddedState::open(&path).unwrap();
    let claim = StateRequest::Claim {
        actor: actor(1),
        epoch: epoch(2),
        claimer: NodeId(7),
    };
    ask_state(&store, claim.clone()).unwrap();
    let state = "state".into();
    let (actor_1, epoch_2) = (actor(1), epoch(2));
    let request = StateRequest::Save {
        actor: actor_1,
        epoch: epoch_2,
        state,
    };
    ask_state(&store, request).unwrap();
    let version = Version(1);
    assert_eq!(
        ask_state(&store, swap(Expected::Absent)),
        Ok(StateReply::Swapped { version })
    );
    let lock = StateRequest::Lock {
        key: value_key(),
        ttl: LONG,
    };
    let token = Version(2);
    assert_eq!(ask_state(&store, lock.clone()), Ok(StateReply::Locked { token }));
    drop(store);

    let store = EmbeddedState::open(&path).unwrap();
    let state = Some("state".into());
    assert_eq!(ask_state(&store, claim), Ok(StateReply::Claimed { state }));
    assert_eq!(
        ask_state(&store, save(1, "late")),
        Err(StateError::Fenced { stored: epoch(2) })
    );
    let version = Version(3);
    let swapped = ask_state(&store, swap(Expected::Version(Version(1))));
    assert_eq!(swapped, Ok(StateReply::Swapped { version }));
    let held = ask_state(&store, lock);
    assert!(
        matches!(held, Err(StateError::LockHeld { remaining }) if remaining <= LONG),
        "{held:?}"
    );
    let lock = LockToken {
        key: value_key(),
        token,
    };
    assert_eq!(
        ask_state(&store, StateRequest::Unlock { lock }),
        Ok(StateReply::Unlocked)
    );
}

#[test]
fn coordination_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordination");
    let store = EmbeddedCoordination::open(&path).unwrap();
    let grant = |ttl| CoordinationRequest::Grant { ttl };
    let Ok(CoordinationReply::Granted { lease: short, .. }) = ask_coordination(&store, grant(Duration::from_secs(1)))
    else {
        panic!("no lease was granted")
    };
    let Ok(CoordinationReply::Granted { lease: long, .. }) = ask_coordination(&store, grant(LONG)) else {
        panic!("no lease was granted")
    };
    let commit = Commit::put("kept", "1")
        .and_put("long", "2", Some(long))
        .and_put("short", "3", Some(short));
    let revision = Revision(1);
    assert_eq!(
        ask_coordination(&store, commit),
        Ok(CoordinationReply::Committed { revision })
    );
    drop(store);

    let store = EmbeddedCoordination::open(&path).unwrap();
    let watching = Watching::start(&store, "", revision.next());
    // The short lease lives for its full time to live again, then expires without a keep-alive.
    let batch = watching.next().unwrap();
    assert_eq!(
        batch.changes.iter().map(|change| change.key()).collect::<Vec<_>>(),
        ["short"]
    );
    assert_eq!(batch.revision, Revision(2));
    let Ok(CoordinationReply::Entries { entries, revision, .. }) = ask_coordination(
        &store,
        CoordinationRequest::Range {
            prefix: String::new(),
            after: None,
            limit: 10,
        },
    ) else {
        panic!("the keys can't be read")
    };
    let keys: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.lease)).collect();
    assert_eq!(keys, [("kept", None), ("long", Some(long))]);
    assert_eq!(revision, Revision(2));
    // A watch from before the restart is rejected.
    let behind = Watching::start(&store, "", Revision(1));
    let oldest = Revision(2);
    assert_eq!(behind.next(), Err(CoordinationError::Compacted { oldest }));
    let Ok(CoordinationReply::Granted { lease, .. }) = ask_coordination(&store, grant(LONG)) else {
        panic!("no lease was granted")
    };
    assert!(lease > long, "a lease id must not be reused");
}

#[test]
fn a_file_can_be_opened_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let _store = EmbeddedState::open(&path).unwrap();
    assert!(matches!(EmbeddedState::open(&path), Err(OpenError::InUse { .. })));
}

#[test]
fn a_missing_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("state");
    assert!(matches!(EmbeddedState::open(&path), Err(OpenError::Failed { .. })));
}

#[test]
fn a_foreign_file_is_refused_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let notes = "these are not the rows you are looking for\n".repeat(1000);
    fs::write(&path, &notes).unwrap();
    let opened = EmbeddedState::open(&path);
    assert!(
        matches!(
            &opened,
            Err(OpenError::Failed {
                failure: StoreFailure::Corrupt { .. },
                ..
            })
        ),
        "{:?}",
        opened.err()
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), notes);
}

#[test]
fn a_truncated_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let store = EmbeddedState::open(&path).unwrap();
    for key in 0..50 {
        ask_state(&store, save(key, vec![7; 10_000])).unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    for part in [1, 2, 3] {
        fs::write(&path, &whole[..whole.len() * part / 4]).unwrap();
        let opened = EmbeddedState::open(&path);
        assert!(matches!(&opened, Err(OpenError::Failed { .. })), "cut to {part}/4");
    }
}

/// Flips one byte of the only occurrence of `marker` in the file.
fn damage(path: &Path, marker: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let places: Vec<usize> = (0..bytes.len() - marker.len())
        .filter(|at| bytes[*at..].starts_with(marker))
        .collect();
    assert!(!places.is_empty(), "the marker is in the file");
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_row_affects_its_actor_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let store = EmbeddedState::open(&path).unwrap();
    for key in 0..10 {
        ask_state(&store, save(key, format!("the marker of actor {key}"))).unwrap();
    }
    drop(store);
    damage(&path, b"the marker of actor 3");
    let store = EmbeddedState::open(&path).unwrap();
    let corrupt = |result| matches!(result, Err(StateError::Failed(StoreFailure::Corrupt { .. })));
    assert!(corrupt(ask_state(&store, load(3))));
    let claim = StateRequest::Claim {
        actor: actor(3),
        epoch: epoch(2),
        claimer: NodeId(1),
    };
    assert!(corrupt(ask_state(&store, claim.clone())));
    for key in (0..10).filter(|key| *key != 3) {
        let expected = StateReply::Loaded {
            epoch: Some(epoch(1)),
            state: Some(format!("the marker of actor {key}").into()),
        };
        assert_eq!(ask_state(&store, load(key)), Ok(expected));
    }
    // A new state repairs it.
    ask_state(&store, save(3, "new")).unwrap();
    let state = Some("new".into());
    assert_eq!(ask_state(&store, claim), Ok(StateReply::Claimed { state }));
}

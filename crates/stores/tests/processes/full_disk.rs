//! A process with a file size limit: it gets a disk-full error, keeps everything acknowledged and still reads. The next
//! process, without the limit, writes again.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest, StateStore, StoreFailure};
use elastin_stores::embedded::EmbeddedState;
use elastin_types::{ActivationEpoch, ActorId, ActorType};

/// The file size limit, in the blocks of 512 or 1024 bytes that shells use.
const BLOCKS_MAX: u64 = 16 << 10;
/// The number of states to try, far more than fit.
const STATES_MAX: u64 = 1000;
const STATE_BYTES: usize = 100_000;
const LIMIT: Duration = Duration::from_secs(60);

/// Starts the process with the limit, and checks the files that it leaves.
pub(crate) fn check() {
    let directory = tempfile::tempdir().unwrap();
    // Ignoring the signal of the limit makes the write fail instead, as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f {BLOCKS_MAX}; exec \"$0\" full-disk-child \"$1\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the child failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let saved: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    println!("full disk: refused after {saved} states");
    assert!(
        saved > 0 && saved < STATES_MAX,
        "the limit must be reached, but not immediately"
    );

    let store = EmbeddedState::open(directory.path().join("state")).unwrap();
    for actor in 0..saved {
        assert_eq!(load(&store, actor), Some(state(actor)));
    }
    assert_eq!(load(&store, saved), None, "a refused state must not be stored");
    save(&store, saved).unwrap();
    assert_eq!(load(&store, saved), Some(state(saved)));
}

/// Saves until the disk is full, and prints the number of acknowledged states.
pub(crate) fn child(directory: &Path) {
    let store = EmbeddedState::open(directory.join("state")).unwrap();
    let refused = (0..STATES_MAX).find_map(|actor| save(&store, actor).err().map(|error| (actor, error)));
    let (saved, error) = refused.expect("the limit is reached");
    assert_eq!(error, StateError::Failed(StoreFailure::DiskFull));
    for actor in 0..saved {
        assert_eq!(load(&store, actor), Some(state(actor)), "reads still succeed");
    }
    println!("{saved}");
}

fn actor(number: u64) -> ActorId {
    ActorId::new(ActorType::of("Writer"), number)
}

fn state(number: u64) -> Vec<u8> {
    (0..STATE_BYTES).map(|index| (index as u64 ^ number) as u8).collect()
}

fn ask(store: &EmbeddedState, request: StateRequest) -> Result<StateReply, StateError> {
    let (sender, receiver) = mpsc::channel();
    store.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv_timeout(LIMIT).expect("the store replies")
}

fn save(store: &EmbeddedState, number: u64) -> Result<(), StateError> {
    let request = StateRequest::Save {
        actor: actor(number),
        epoch: ActivationEpoch::default(),
        state: state(number).into(),
    };
    ask(store, request).map(drop)
}

fn load(store: &EmbeddedState, number: u64) -> Option<Vec<u8>> {
    match ask(store, StateRequest::Load { actor: actor(number) }) {
        Ok(StateReply::Loaded { state, .. }) => state.map(|state| state.to_vec()),
        other => panic!("a load ended with {other:?}"),
    }
}

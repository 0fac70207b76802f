//! A store that goes down during writes and recovers: each write reports its outcome correctly, and every acknowledged
//! write is stored.
//!
//! Every write has a key of its own, so that the outcomes are independent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, StateError, StateReply,
    StateRequest, StateStore, StoreFailure,
};
use elastin_types::{ActivationEpoch, ActorId, ActorType};

use crate::blocking::LIMIT;

/// The number of concurrent writes.
const IN_FLIGHT: usize = 32;
/// The number of writes acknowledged before the store goes down, and again after it has recovered.
const ACKNOWLEDGED_MIN: u64 = 50;
/// The delay after a failure before the next write, to avoid a tight loop while the store is down.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// The outcome of a write.
#[derive(Debug, PartialEq)]
enum Ended {
    Acknowledged,
    NotApplied(String),
    InDoubt,
}

impl From<StoreFailure> for Ended {
    fn from(failure: StoreFailure) -> Ended {
        if failure.may_be_applied() {
            Ended::InDoubt
        } else {
            Ended::NotApplied(failure.to_string())
        }
    }
}

/// A store of either kind, to which numbers are written.
#[derive(Clone, Copy)]
pub(crate) enum Written<'a> {
    State(&'a dyn StateStore),
    Coordination(&'a dyn Coordination),
}

impl Written<'_> {
    fn write(self, number: u64, ends: &Sender<(u64, Ended)>) {
        let ends = ends.clone();
        let tell = move |ended| {
            // The test may have failed meanwhile.
            let _ = ends.send((number, ended));
        };
        match self {
            Written::State(store) => {
                let save = StateRequest::Save {
                    actor: actor(number),
                    epoch: ActivationEpoch::default(),
                    state: number.to_string().into(),
                };
                let done = move |result| match result {
                    Ok(StateReply::Saved) => tell(Ended::Acknowledged),
                    Err(StateError::Failed(failure)) => tell(failure.into()),
                    other => panic!("a save ended with {other:?}"),
                };
                store.submit(save, Box::new(done));
            }
            Written::Coordination(store) => {
                let commit = Commit::put(key(number), number.to_string());
                let done = move |result| match result {
                    Ok(CoordinationReply::Committed { .. }) => tell(Ended::Acknowledged),
                    Err(CoordinationError::Failed(failure)) => tell(failure.into()),
                    other => panic!("a commit ended with {other:?}"),
                };
                store.submit(commit.into(), Box::new(done));
            }
        }
    }

    /// Reads whether a number is stored.
    fn read(self, number: u64) -> Receiver<bool> {
        let (sender, found) = mpsc::channel();
        match self {
            Written::State(store) => {
                let done = move |result| match result {
                    Ok(StateReply::Loaded { state, .. }) => sender.send(state.is_some()).unwrap(),
                    other => panic!("a load ended with {other:?}"),
                };
                store.submit(StateRequest::Load { actor: actor(number) }, Box::new(done));
            }
            Written::Coordination(store) => {
                let done = move |result| match result {
                    Ok(CoordinationReply::Got { entry, .. }) => sender.send(entry.is_some()).unwrap(),
                    other => panic!("a get ended with {other:?}"),
                };
                store.submit(CoordinationRequest::Get { key: key(number) }, Box::new(done));
            }
        }
        found
    }
}

fn actor(number: u64) -> ActorId {
    ActorId::new(ActorType::of("Torn"), number)
}

fn key(number: u64) -> String {
    format!("torn/{number}")
}

/// The number of writes by outcome.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) acknowledged: u64,
    pub(crate) not_applied: u64,
    pub(crate) in_doubt: u64,
}

/// Writes continuously while the store goes down and recovers, then checks its content. Called once per store.
pub(crate) fn check(store: Written<'_>, restart: impl FnOnce()) -> Seen {
    let (ends, ended) = mpsc::channel();
    let recovered = AtomicBool::new(false);
    let (enough, await_enough) = mpsc::channel();
    let history = std::thread::scope(|scope| {
        let recovered = &recovered;
        let writing = scope.spawn(move || write_continuously(store, &ends, &ended, &enough, recovered));
        await_enough.recv_timeout(LIMIT).expect("the store is up at first");
        restart();
        recovered.store(true, Ordering::Release);
        writing.join().unwrap()
    });
    let mut seen = Seen::default();
    let found: Vec<_> = history.iter().map(|(number, _)| store.read(*number)).collect();
    for ((number, ended), found) in history.into_iter().zip(found) {
        let found = found.recv_timeout(LIMIT).expect("each read completes");
        match ended {
            Ended::Acknowledged => {
                assert!(found, "{number} was acknowledged but is not stored");
                seen.acknowledged += 1;
            }
            Ended::NotApplied(reason) => {
                assert!(!found, "{number} is stored although: {reason}");
                seen.not_applied += 1;
            }
            Ended::InDoubt => seen.in_doubt += 1,
        }
    }
    seen
}

/// Writes one number after another until enough are acknowledged that were begun after the recovery.
fn write_continuously(
    store: Written<'_>,
    ends: &Sender<(u64, Ended)>,
    ended: &Receiver<(u64, Ended)>,
    enough: &Sender<()>,
    recovered: &AtomicBool,
) -> Vec<(u64, Ended)> {
    let mut history = Vec::new();
    let (mut begun, mut acknowledged) = (0, 0);
    // The first number begun after the recovery, and the deadline for it.
    let mut back: Option<(u64, Instant)> = None;
    loop {
        if back.is_none() && recovered.load(Ordering::Acquire) {
            back = Some((begun, Instant::now() + LIMIT));
            acknowledged = 0;
        }
        let is_over = back.is_some() && acknowledged >= ACKNOWLEDGED_MIN;
        if !is_over && begun - (history.len() as u64) < IN_FLIGHT as u64 {
            store.write(begun, ends);
            begun += 1;
            continue;
        }
        if history.len() as u64 == begun {
            return history;
        }
        let (number, end) = ended.recv_timeout(LIMIT).expect("each write completes");
        match &end {
            Ended::Acknowledged if number >= back.map_or(0, |(first, _)| first) => acknowledged += 1,
            Ended::Acknowledged => {}
            Ended::NotApplied(_) | Ended::InDoubt => std::thread::sleep(RETRY_DELAY),
        }
        if acknowledged == ACKNOWLEDGED_MIN && back.is_none() {
            // The receiver may be gone: only the first notification matters.
            let _ = enough.send(());
        }
        if let Some((_, deadline)) = back {
            assert!(Instant::now() < deadline, "the store does not recover: {end:?}");
        }
        history.push((number, end));
    }
}

//! A store that goes away in the middle of writes and comes back: each write ended truthfully, and what was acknowledged is there.
//!
//! Every write has a key of its own, so what became of one says nothing about another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, StateError, StateReply,
    StateRequest, StateStore, StoreFailure,
};
use elastin_types::{ActivationEpoch, ActorId, ActorType};

use crate::blocking::LIMIT;

/// How many writes are under way at the same time.
const UNDER_WAY: usize = 32;
/// How many must be acknowledged before the store goes, and again when it is back.
const ACKNOWLEDGED_MIN: u64 = 50;
/// How long to wait after a failure before the next write: what is away is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(5);

/// How a write ended.
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

    /// Asks whether a number is there.
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

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) acknowledged: u64,
    pub(crate) not_applied: u64,
    pub(crate) in_doubt: u64,
}

/// Writes all the time, while the store goes away and comes back, and then looks at what is there. It is called once per store.
pub(crate) fn check(store: Written<'_>, away_and_back: impl FnOnce()) -> Seen {
    let (ends, ended) = mpsc::channel();
    let is_back = AtomicBool::new(false);
    let (enough, await_enough) = mpsc::channel();
    let history = std::thread::scope(|scope| {
        let is_back = &is_back;
        let writing = scope.spawn(move || write_on(store, &ends, &ended, &enough, is_back));
        await_enough.recv_timeout(LIMIT).expect("the store is there at first");
        away_and_back();
        is_back.store(true, Ordering::Release);
        writing.join().unwrap()
    });
    let mut seen = Seen::default();
    let found: Vec<_> = history.iter().map(|(number, _)| store.read(*number)).collect();
    for ((number, ended), found) in history.into_iter().zip(found) {
        let found = found.recv_timeout(LIMIT).expect("each read ends");
        match ended {
            Ended::Acknowledged => {
                assert!(found, "{number} was acknowledged and is not there");
                seen.acknowledged += 1;
            }
            Ended::NotApplied(reason) => {
                assert!(!found, "{number} is there although: {reason}");
                seen.not_applied += 1;
            }
            Ended::InDoubt => seen.in_doubt += 1,
        }
    }
    seen
}

/// Writes one number after the other, until enough are acknowledged that were begun after the store was back.
fn write_on(
    store: Written<'_>,
    ends: &Sender<(u64, Ended)>,
    ended: &Receiver<(u64, Ended)>,
    enough: &Sender<()>,
    is_back: &AtomicBool,
) -> Vec<(u64, Ended)> {
    let mut history = Vec::new();
    let (mut begun, mut acknowledged) = (0, 0);
    // The first number that was begun after the store was back, and until when it must do its work again.
    let mut back: Option<(u64, Instant)> = None;
    loop {
        if back.is_none() && is_back.load(Ordering::Acquire) {
            back = Some((begun, Instant::now() + LIMIT));
            acknowledged = 0;
        }
        let is_over = back.is_some() && acknowledged >= ACKNOWLEDGED_MIN;
        if !is_over && begun - (history.len() as u64) < UNDER_WAY as u64 {
            store.write(begun, ends);
            begun += 1;
            continue;
        }
        if history.len() as u64 == begun {
            return history;
        }
        let (number, end) = ended.recv_timeout(LIMIT).expect("each write ends");
        match &end {
            Ended::Acknowledged if number >= back.map_or(0, |(first, _)| first) => acknowledged += 1,
            Ended::Acknowledged => {}
            Ended::NotApplied(_) | Ended::InDoubt => std::thread::sleep(PAUSE),
        }
        if acknowledged == ACKNOWLEDGED_MIN && back.is_none() {
            // More come while it goes; nobody listens any more then.
            let _ = enough.send(());
        }
        if let Some((_, until)) = back {
            assert!(Instant::now() < until, "the store does not do its work again: {end:?}");
        }
        history.push((number, end));
    }
}

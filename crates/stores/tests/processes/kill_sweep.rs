//! Repeatedly kills a process that writes to the embedded stores, and checks the files: no acknowledged write is lost,
//! no write is partial, and nothing is stored that was never submitted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use elastin_protocol::store::{
    Commit, Coordination, CoordinationReply, CoordinationRequest, StateReply, StateRequest, StateStore,
};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState};
use elastin_types::{ActivationEpoch, ActorId, ActorType};

/// The number of actors that write concurrently.
const ACTORS: u64 = 32;
/// The writer number of the coordination key, after those of the actors.
const COUNTER: u64 = ACTORS;
/// The most acknowledgements before a kill.
const ACKS_MAX: u64 = 1500;
/// The longest delay between an acknowledgement and a kill, to hit commits at every point.
const DELAY_MAX: Duration = Duration::from_millis(5);
/// The timeout for every step of a child.
const LIMIT: Duration = Duration::from_secs(60);

/// The `number`th state of an actor: its length varies, and every byte depends on both.
fn state(actor: u64, number: u64) -> Vec<u8> {
    let length = 16 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 6000;
    let mut state = number.to_le_bytes().to_vec();
    state.extend((0..length).map(|index| (index ^ actor ^ number) as u8));
    state
}

/// The number of a state, if it is intact.
fn number(actor: u64, bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == state(actor, number)).then_some(number)
}

fn load(actor: u64) -> StateRequest {
    let actor = ActorId::new(ActorType::of("Writer"), actor);
    StateRequest::Load { actor }
}

/// The content of the files: the number of writes of each actor and of the coordination key.
fn read(state: &dyn StateStore, coordination: &dyn Coordination) -> BTreeMap<u64, u64> {
    let mut numbers = BTreeMap::new();
    for actor in 0..ACTORS {
        let (sender, receiver) = mpsc::channel();
        state.submit(load(actor), Box::new(move |result| sender.send(result).unwrap()));
        let Ok(StateReply::Loaded { state, .. }) = receiver.recv_timeout(LIMIT).unwrap() else {
            panic!("the state of actor {actor} can't be read");
        };
        if let Some(state) = state {
            let number = number(actor, &state).unwrap_or_else(|| panic!("the state of actor {actor} is half-written"));
            numbers.insert(actor, number);
        }
    }
    let (sender, receiver) = mpsc::channel();
    let key = "counter".to_owned();
    let done = Box::new(move |result| sender.send(result).unwrap());
    coordination.submit(CoordinationRequest::Get { key }, done);
    let Ok(CoordinationReply::Got { entry, revision }) = receiver.recv_timeout(LIMIT).unwrap() else {
        panic!("the counter can't be read");
    };
    if let Some(entry) = entry {
        let number = u64::from_le_bytes(*entry.value.first_chunk().expect("a whole number"));
        assert_eq!(revision.0, number, "only the counter is ever committed");
        numbers.insert(COUNTER, number);
    }
    numbers
}

fn open(directory: &Path) -> (Arc<EmbeddedState>, Arc<EmbeddedCoordination>) {
    let state = EmbeddedState::open(directory.join("state")).unwrap();
    let coordination = EmbeddedCoordination::open(directory.join("coordination")).unwrap();
    (Arc::new(state), Arc::new(coordination))
}

/// Writes forever, and prints each acknowledged write.
pub(crate) fn child(directory: &Path) {
    let (state, coordination) = open(directory);
    let numbers = read(&*state, &*coordination);
    let next = |writer| numbers.get(&writer).map_or(1, |number| number + 1);
    for actor in 0..ACTORS {
        save(state.clone(), actor, next(actor));
    }
    count(coordination, next(COUNTER));
    std::thread::park_timeout(LIMIT);
}

fn save(store: Arc<EmbeddedState>, actor: u64, number: u64) {
    let request = StateRequest::Save {
        actor: ActorId::new(ActorType::of("Writer"), actor),
        epoch: ActivationEpoch::default(),
        state: state(actor, number).into(),
    };
    let again = store.clone();
    let done = Box::new(move |result| {
        assert_eq!(result, Ok(StateReply::Saved));
        acknowledge(actor, number);
        save(again, actor, number + 1);
    });
    store.submit(request, done);
}

fn count(store: Arc<EmbeddedCoordination>, number: u64) {
    let again = store.clone();
    let commit = Commit::put("counter", number.to_le_bytes().to_vec());
    let done = Box::new(move |result: Result<_, _>| {
        assert!(result.is_ok(), "{result:?}");
        acknowledge(COUNTER, number);
        count(again, number + 1);
    });
    store.submit(commit.into(), done);
}

fn acknowledge(writer: u64, number: u64) {
    // A single write to the pipe is delivered even if the process is killed right after.
    let line = format!("{writer} {number}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("the parent reads");
}

/// A deterministic pseudo-random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}

pub(crate) fn sweep(kills: u64, seed: u64) {
    println!("kill sweep: {kills} kills with seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let mut written = BTreeMap::new();
    let mut acks_in_all = 0;
    for kill in 1..=kills {
        let (mut child, acks) = start(directory.path());
        let wanted = 1 + random.below(ACKS_MAX);
        let mut acknowledged = written.clone();
        for _ in 0..wanted {
            let (writer, number) = acks.recv_timeout(LIMIT).expect("the child writes");
            acknowledged.insert(writer, number);
        }
        spin(Duration::from_nanos(random.below(DELAY_MAX.as_nanos() as u64)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Acknowledgements printed before the kill count as well.
        for (writer, number) in acks {
            acknowledged.insert(writer, number);
        }
        acks_in_all += wanted;
        let (state, coordination) = open(directory.path());
        written = read(&*state, &*coordination);
        check(kill, &acknowledged, &written);
    }
    println!("kill sweep: nothing lost in {kills} kills after at least {acks_in_all} acknowledged writes");
}

fn start(directory: &Path) -> (Child, Receiver<(u64, u64)>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("kill-sweep-child").arg(directory).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, acks) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let (writer, number) = line.split_once(' ').expect("a writer and a number");
            let ack = (writer.parse().unwrap(), number.parse().unwrap());
            if sender.send(ack).is_err() {
                return;
            }
        }
    });
    (child, acks)
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A file has every acknowledged write, and at most the one that was in flight.
fn check(kill: u64, acknowledged: &BTreeMap<u64, u64>, written: &BTreeMap<u64, u64>) {
    for writer in 0..=COUNTER {
        let acknowledged = acknowledged.get(&writer).copied().unwrap_or(0);
        let written = written.get(&writer).copied().unwrap_or(0);
        assert!(
            written == acknowledged || written == acknowledged + 1,
            "kill {kill}: writer {writer} got {acknowledged} acknowledged, and {written} is in the file"
        );
    }
}

//! Moves of actors between real processes under load: nothing is lost, doubled or reordered. With servers killed during
//! moves, every reported outcome is true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elastin::types::ActorId;
use elastin::{Client, Embedded};
use elastin_testkit::{Feeder, History, Journal, Ledger, SeededRng, embedded, log_of, server_names, wait_for};
use tokio::task::JoinSet;

const CALL_DEADLINE: Duration = Duration::from_secs(30);

async fn cluster(servers: u32) -> Embedded {
    embedded(servers, env!("CARGO_BIN_EXE_testkit-server")).await
}

/// The number of messages that each sender has sent to each journal.
type Sent = BTreeMap<(u32, u64), u64>;

const JOURNALS: u64 = 24;
const FEEDERS: u64 = 8;
const CLIENTS: u32 = 6;
const MOVES: usize = 1000;

/// Sends two one-way appends to a journal and then calls it, repeatedly. Returns how much it sent to each.
async fn write_journals(client: Client, sender: u32, stop: Arc<AtomicBool>) -> Sent {
    let mut rng = SeededRng::new(u64::from(sender));
    let mut sent = Sent::new();
    while !stop.load(Ordering::Relaxed) {
        let journal = rng.below(JOURNALS as usize) as u64;
        let next = sent.entry((sender, journal)).or_default();
        let actor = client.actor::<Journal>(journal);
        for _ in 0..2 {
            *next += 1;
            actor
                .append(sender, *next)
                .deadline(CALL_DEADLINE)
                .tell()
                .await
                .expect("a tell is accepted");
        }
        *next += 1;
        let count = actor
            .append(sender, *next)
            .deadline(CALL_DEADLINE)
            .await
            .expect("a call is answered");
        assert_eq!(
            count, *next,
            "journal {journal} has lost or doubled something of sender {sender}"
        );
    }
    sent
}

/// Lets feeders send to journals, so that messages between moving actors are in flight too.
async fn feed_journals(client: Client, feeder: u64, stop: Arc<AtomicBool>) -> Sent {
    let sender = 1000 + feeder as u32;
    let mut rng = SeededRng::new(u64::from(sender));
    let mut sent = Sent::new();
    while !stop.load(Ordering::Relaxed) {
        let journal = rng.below(JOURNALS as usize) as u64;
        let fed = client
            .actor::<Feeder>(feeder)
            .feed(sender, journal, 3)
            .deadline(CALL_DEADLINE)
            .await;
        sent.insert((sender, journal), fed.expect("a feeder is answered"));
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_moves_under_load_lose_nothing_and_keep_order() {
    let cluster = cluster(3).await;
    let client = cluster.client().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = JoinSet::new();
    for sender in 0..CLIENTS {
        let client = cluster.client().await.unwrap();
        senders.spawn(write_journals(client, sender, Arc::clone(&stop)));
    }
    for feeder in 0..FEEDERS {
        senders.spawn(feed_journals(client.clone(), feeder, Arc::clone(&stop)));
    }

    let mut rng = SeededRng::new(7);
    let servers = server_names(&cluster);
    let mut moved = 0;
    let began = Instant::now();
    while moved < MOVES {
        let actor: ActorId = match rng.below((JOURNALS + FEEDERS) as usize) as u64 {
            journal if journal < JOURNALS => client.actor::<Journal>(journal).id().clone(),
            feeder => client.actor::<Feeder>(feeder - JOURNALS).id().clone(),
        };
        // Fails for an actor that is not active yet, or already there.
        if cluster.move_actor(&actor, rng.pick::<String>(&servers)).await.is_ok() {
            moved += 1;
        }
        assert!(
            began.elapsed() < Duration::from_secs(240),
            "only {moved} moves in {:?}",
            began.elapsed()
        );
    }

    stop.store(true, Ordering::Relaxed);
    let mut sent = Sent::new();
    while let Some(of_sender) = senders.join_next().await {
        sent.extend(of_sender.expect("no sender found a violation"));
    }
    let mut messages = 0;
    for journal in 0..JOURNALS {
        let log = client
            .actor::<Journal>(journal)
            .log()
            .deadline(CALL_DEADLINE)
            .await
            .unwrap();
        for ((sender, _), count) in sent.iter().filter(|((_, of), _)| *of == journal) {
            let expected: Vec<u64> = (1..=*count).collect();
            let numbers = log.get(sender).cloned().unwrap_or_default();
            assert!(
                numbers == expected,
                "journal {journal} got {numbers:?} from {sender}, not 1 to {count}"
            );
            messages += count;
        }
    }
    eprintln!("{moved} moves, {messages} messages in {:?}", began.elapsed());
    cluster.shutdown().await;
}

const LEDGERS: u64 = 12;
const KILLS: usize = 40;

async fn write_ledgers(client: Client, sender: u32, stop: Arc<AtomicBool>) -> History {
    let mut rng = SeededRng::new(u64::from(sender));
    let mut history = History::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let ledger = rng.below(LEDGERS as usize) as u64;
        number += 1;
        let actor = client.actor::<Ledger>(ledger);
        let outcome = actor.append(sender, number).deadline(CALL_DEADLINE).await;
        history.appended(ledger, sender, number, outcome);
    }
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_are_true_although_targets_are_killed_during_moves() {
    let cluster = Arc::new(cluster(3).await);
    let client = cluster.client().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = JoinSet::new();
    for sender in 0..4 {
        let client = cluster.client().await.unwrap();
        senders.spawn(write_ledgers(client, sender, Arc::clone(&stop)));
    }

    let mut rng = SeededRng::new(11);
    let (mut killed, mut moved, mut tried) = (0, 0, 0);
    let began = Instant::now();
    while killed < KILLS {
        tried += 1;
        let actor = client.actor::<Ledger>(rng.below(LEDGERS as usize) as u64).id().clone();
        let target = rng.pick(&server_names(&cluster)).clone();
        let moving = tokio::spawn({
            let (cluster, target) = (Arc::clone(&cluster), target.clone());
            async move { cluster.move_actor(&actor, &target).await }
        });
        // Every tenth move, the target is killed while the move is in flight, a little later each time.
        if tried % 10 == 0 {
            tokio::time::sleep(Duration::from_micros(150 * killed as u64)).await;
            assert!(cluster.kill(&target).await, "{target} was there to be killed");
            killed += 1;
            wait_for("a new server in its place", || {
                let now = server_names(&cluster);
                now.len() == 3 && !now.contains(&target)
            })
            .await;
        }
        moved += usize::from(moving.await.unwrap().is_ok());
        assert!(
            began.elapsed() < Duration::from_secs(240),
            "only {killed} kills in {:?}",
            began.elapsed()
        );
    }

    stop.store(true, Ordering::Relaxed);
    let mut history = History::default();
    while let Some(of_sender) = senders.join_next().await {
        history.merge(of_sender.expect("no sender met an impossible outcome"));
    }
    let mut found = Vec::new();
    for ledger in 0..LEDGERS {
        found.extend(history.violations(ledger, &log_of(&client, ledger).await));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let counts = history.counts();
    eprintln!("{moved} moves, {killed} kills; calls: {counts:?}");
    assert!(counts.acknowledged > 100, "the load was real");
    Arc::into_inner(cluster).expect("all tasks have ended").shutdown().await;
}

//! A client of a cluster whose servers come and go: it retries calls that certainly have not run, and no others.

use std::time::{Duration, Instant};

use elastin::Embedded;
use elastin::prelude::*;
use elastin_testkit::{Feeder, Journal, Ledger, app, embedded, server_names, wait_for};
use tokio::task::JoinSet;

const CALL_DEADLINE: Duration = Duration::from_secs(60);
const LEDGERS: u64 = 8;

async fn cluster_of_one() -> (Embedded, Client) {
    let cluster = embedded(1, env!("CARGO_BIN_EXE_testkit-server")).await;
    let client = cluster.client().await.unwrap();
    (cluster, client)
}

async fn append(client: Client, ledger: u64, number: u64) -> Result<u64, CallError> {
    let ledger = client.actor::<Ledger>(ledger);
    ledger.append(0, number).deadline(CALL_DEADLINE).await
}

/// Makes calls to new actors, of those from this key on, until one is refused because no server takes it; returns the
/// error and how long that took.
async fn refused(client: &Client, mut key: u64, wait_max: Duration) -> (CallError, Duration) {
    let began = Instant::now();
    loop {
        let called_at = Instant::now();
        let outcome = client.actor::<Ledger>(key).append(0, 1).deadline(wait_max).await;
        if let Err(error) = outcome {
            return (error, called_at.elapsed());
        }
        assert!(began.elapsed() < CALL_DEADLINE, "servers still take actors");
        key += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undelivered_call_is_retried_until_its_deadline() {
    let (cluster, client) = cluster_of_one().await;
    assert_eq!(append(client.clone(), 1, 1).await, Ok(1));
    // The only server is cordoned but can't leave: no other server takes its actors.
    cluster.drain(&server_names(&cluster)[0]);
    let wait_max = Duration::from_millis(300);
    let (error, spent) = refused(&client, 1000, wait_max).await;
    assert!(matches!(error, CallError::NotDelivered(_)), "{error:?}");
    assert!(spent > Duration::from_millis(50), "it was retried for {spent:?} only");

    let mut calls = JoinSet::new();
    for ledger in 100..100 + LEDGERS {
        calls.spawn(append(client.clone(), ledger, 1));
    }
    cluster.add_server().await.expect("a server starts");
    while let Some(outcome) = calls.join_next().await {
        assert_eq!(outcome.unwrap(), Ok(1), "the new server takes it");
    }
    assert_eq!(
        append(client, 1, 2).await,
        Ok(2),
        "the first server's actors have moved"
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_doubt_is_not_retried() {
    const KILLS: u64 = 5;
    let (cluster, client) = cluster_of_one().await;
    let mut in_doubt = 0;
    for round in 1..=KILLS {
        let only = server_names(&cluster).remove(0);
        assert!(cluster.kill(&only).await, "{only} was there to be killed");
        let mut calls = JoinSet::new();
        for ledger in 0..LEDGERS {
            calls.spawn(append(client.clone(), ledger, round));
        }
        while let Some(outcome) = calls.join_next().await {
            match outcome.unwrap() {
                Ok(_) => {}
                Err(CallError::Unknown(_)) => in_doubt += 1,
                Err(error) => panic!("a call ended with {error:?}"),
            }
        }
        wait_for("another server", || {
            server_names(&cluster).first().is_some_and(|name| *name != only)
        })
        .await;
    }
    assert!(in_doubt > 0, "no call was in flight when a server was killed");
    for ledger in 0..LEDGERS {
        let log = client.actor::<Ledger>(ledger).log().deadline(CALL_DEADLINE).await;
        let numbers = log.unwrap().remove(&0).unwrap_or_default();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "doubled: {numbers:?}");
    }
    cluster.shutdown().await;
}

/// A lone caller busy-polls for its reply while others are notified; the roles alternate all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alternating_lone_callers_get_all_their_outcomes() {
    const CALLS: u64 = 1_000;
    let (cluster, client) = cluster_of_one().await;
    for callers in [1, 2, 3, 4, 40] {
        let mut calls = JoinSet::new();
        for caller in 0..callers {
            let journal = client.actor::<Journal>(caller);
            calls.spawn(async move {
                for number in 1..=CALLS / callers.div_ceil(4) {
                    let appended = journal.append(callers as u32, number).deadline(CALL_DEADLINE / 4).await;
                    assert_eq!(appended, Ok(number), "of {callers} callers");
                }
            });
        }
        calls.join_all().await;
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_distinguish_calls_of_clients_and_actors() {
    const OF_CLIENT: u64 = 1;
    const OF_FEEDER: u64 = 2;
    let policy = "client.call(Journal(j).append).count > 5 => reserve(j, cpu);";
    let cluster = app()
        .embedded()
        .servers(2)
        .period(Duration::from_millis(300))
        .policy(PolicySource::new("client.epl", policy))
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    let decided = || -> Vec<String> {
        let decisions = cluster.decisions();
        decisions.iter().map(|decision| cluster.explain(decision)).collect()
    };
    // Other actors may move too, to make room for the reserved one.
    let is_reserved = |journal: u64| {
        let (moved, dedicated) = (
            format!("Journal/{journal} moved"),
            format!("dedicated to Journal/{journal}:"),
        );
        decided().iter().any(|decision| {
            decision.contains(&dedicated) || (decision.starts_with(&moved) && decision.contains("reserves it"))
        })
    };
    // Both on one server, so that the policy has to act.
    for journal in [OF_CLIENT, OF_FEEDER] {
        let journal = client.actor::<Journal>(journal);
        journal.log().deadline(CALL_DEADLINE).await.unwrap();
        match cluster.move_actor(journal.id(), "server-1").await {
            Ok(()) => {}
            Err(error) => assert_eq!(error.to_string(), "the actor is already there"),
        }
    }
    let began = Instant::now();
    while !is_reserved(OF_CLIENT) {
        assert!(began.elapsed() < CALL_DEADLINE, "nothing was decided: {:?}", decided());
        let fed = client
            .actor::<Feeder>(1)
            .feed(1, OF_FEEDER, 100)
            .deadline(CALL_DEADLINE)
            .await;
        fed.expect("the feeder is answered");
        for number in 0..20 {
            let journal = client.actor::<Journal>(OF_CLIENT);
            journal.append(0, number).deadline(CALL_DEADLINE).await.unwrap();
        }
    }
    assert!(!is_reserved(OF_FEEDER), "{:?}", decided());
    cluster.shutdown().await;
}

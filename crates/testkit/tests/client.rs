//! A client of a cluster whose servers die: it follows, calls again what certainly has not run, and nothing else.

use std::time::{Duration, Instant};

use elastin::prelude::*;
use elastin_testkit::{Ledger, app, wait_for};
use tokio::task::JoinSet;

const CALL_DEADLINE: Duration = Duration::from_secs(60);
const KILLS: u64 = 5;
const LEDGERS: u64 = 8;

/// Appends a number over and over until it is told that it is there or that it may be; says which.
async fn append(client: Client, ledger: u64, number: u64) -> Result<u64, CallError> {
    let ledger = client.actor::<Ledger>(ledger);
    ledger.append(0, number).deadline(CALL_DEADLINE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_were_not_delivered_are_made_again_and_no_others() {
    let cluster = app()
        .embedded()
        .servers(1)
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    let names = || -> Vec<String> { cluster.servers().into_iter().map(|server| server.name).collect() };
    let (mut answered, mut in_doubt) = (0, 0);
    for round in 1..=KILLS {
        let [only] = &names()[..] else {
            panic!("there is one server")
        };
        assert!(cluster.kill(only).await);
        // Nobody can take the actors now: calls find no place, until there is another server.
        let mut calls = JoinSet::new();
        for ledger in 0..LEDGERS {
            calls.spawn(append(client.clone(), ledger, round));
        }
        while let Some(outcome) = calls.join_next().await {
            match outcome.unwrap() {
                Ok(_) => answered += 1,
                Err(CallError::Unknown(_)) => in_doubt += 1,
                Err(error) => panic!("a call ended with {error:?}"),
            }
        }
        wait_for("another server", || names().len() == 1 && names()[0] != *only).await;
    }
    assert!(answered > 0, "{in_doubt} in doubt");
    for ledger in 0..LEDGERS {
        let log = client
            .actor::<Ledger>(ledger)
            .log()
            .deadline(CALL_DEADLINE)
            .await
            .unwrap();
        let numbers = log.get(&0).cloned().unwrap_or_default();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "doubled: {numbers:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_made_again_only_until_its_deadline() {
    let cluster = app()
        .embedded()
        .servers(1)
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    // The only server takes nobody any more, and stays for as long as an actor can't leave it.
    let ledger = client.actor::<Ledger>(1);
    ledger.append(0, 1).deadline(CALL_DEADLINE).await.unwrap();
    cluster.drain(&cluster.servers()[0].name);
    let wait_max = Duration::from_millis(700);
    let began = Instant::now();
    let refused = loop {
        let began = Instant::now();
        let key = 1000 + began.elapsed().as_nanos() as u64;
        match client.actor::<Ledger>(key).append(0, 1).deadline(wait_max).await {
            Ok(_) => assert!(began.elapsed() < CALL_DEADLINE, "the server still takes actors"),
            Err(error) => break (error, began.elapsed()),
        }
    };
    assert!(began.elapsed() < CALL_DEADLINE);
    assert!(
        matches!(refused, (CallError::NotDelivered(_), spent) if spent < wait_max),
        "{refused:?}"
    );
    cluster.shutdown().await;
}

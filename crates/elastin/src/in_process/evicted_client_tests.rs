//! A client that loses its lease rejoins by itself, and its clients and references keep working.

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_types::Unknown;
use tokio::sync::{Notify, oneshot};

use super::InProcess;
use super::end_lease::end_lease;
use crate::Elastin;
use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

/// The number of times that the client loses its lease: from the second time on, that of a rejoined member.
const LOSSES: u64 = 3;

/// Far longer than the tests take on a slow machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Notified when a turn that never ends has begun.
static WAITS: Notify = Notify::const_new();

/// Records numbers.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Tally {
    numbers: Vec<u64>,
}

#[handlers]
impl Tally {
    fn note(&mut self, number: u64) -> u64 {
        self.numbers.push(number);
        self.numbers.len() as u64
    }

    async fn never_answers(&mut self) {
        WAITS.notify_one();
        std::future::pending().await
    }

    fn numbers(&self) -> Vec<u64> {
        self.numbers.clone()
    }
}

async fn within<T>(label: &str, event: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(WAIT_MAX, event).await;
    result.unwrap_or_else(|_| panic!("timed out waiting for {label}"))
}

/// Revokes the client's lease, and waits until it has rejoined as another member.
async fn evict_client(cluster: &InProcess) {
    let before = cluster.cluster.member().me;
    end_lease(cluster, "test").await;
    within("a new membership", async {
        while cluster.cluster.member().me == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_loses_its_lease_rejoins_as_another_member() {
    let app = Elastin::app().actor::<Tally>();
    let mut cluster = app.in_process().servers(2).start().await.unwrap();
    // Both are created before the first loss.
    let (client, tally) = (cluster.client().clone(), cluster.client().actor::<Tally>("kept"));
    assert_eq!(tally.note(0).await, Ok(1));
    for loss in 1..=LOSSES {
        let in_flight = client.actor::<Tally>(loss);
        let in_flight = tokio::spawn(async move { in_flight.never_answers().deadline(WAIT_MAX * 2).await });
        within("the turn", WAITS.notified()).await;
        evict_client(&cluster).await;
        let ended = within("the end of the call in flight", in_flight).await;
        assert_eq!(
            ended.unwrap(),
            Err(CallError::Unknown(Unknown::NodeLost)),
            "its reply can't reach the member that made the call"
        );
        // At once, while the new member may not have a roster yet.
        assert_eq!(tally.note(loss).await, Ok(loss + 1));
        assert_eq!(client.actor::<Tally>("new").note(loss).await, Ok(loss));
    }
    let all: Vec<u64> = (0..=LOSSES).collect();
    assert_eq!(tally.numbers().await, Ok(all), "each ran once");
    // Admin requests work too.
    cluster.move_actor(tally.id(), "server-1").await.unwrap();
    cluster.move_actor(tally.id(), "server-2").await.unwrap();
    let third = cluster.add_server().await.unwrap();
    assert_eq!(cluster.server_names(), ["server-1", "server-2", &third]);
    assert_eq!(tally.note(9).await, Ok(LOSSES + 2));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_made_while_the_lease_is_lost_run_once() {
    let app = Elastin::app().actor::<Tally>();
    let cluster = app.in_process().servers(2).start().await.unwrap();
    let client = cluster.client().clone();
    let (is_over, mut over) = oneshot::channel();
    let calling = tokio::spawn(async move {
        let mut notes = Vec::new();
        for number in 0.. {
            if over.try_recv().is_ok() {
                break;
            }
            let outcome = client.actor::<Tally>(number % 8).note(number).deadline(WAIT_MAX).await;
            notes.push((number, outcome));
        }
        notes
    });
    for _ in 0..LOSSES {
        evict_client(&cluster).await;
    }
    is_over.send(()).expect("the caller runs until it is stopped");
    let notes = within("the end of all calls", calling).await.unwrap();
    for key in 0..8 {
        let numbers = cluster.client().actor::<Tally>(key).numbers().await.unwrap();
        let different: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(different.len(), numbers.len(), "doubled: {numbers:?}");
        for (number, outcome) in notes.iter().filter(|(number, _)| number % 8 == key) {
            match outcome {
                Ok(_) => assert!(numbers.contains(number), "{number} was acknowledged"),
                Err(CallError::Unknown(_)) => {}
                other => panic!("{number} ended with {other:?}"),
            }
        }
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fake_time_advances_with_the_rejoined_client() {
    let app = Elastin::app().actor::<Tally>();
    let mut cluster = app.in_process().servers(2).fake_time().start().await.unwrap();
    let tally = cluster.client().actor::<Tally>("kept");
    assert_eq!(tally.note(1).await, Ok(1));
    evict_client(&cluster).await;
    // The new member's lease is renewed meanwhile.
    cluster.advance(3 * HOUR).await.unwrap();
    assert_eq!(tally.note(2).await, Ok(2));
    cluster.shutdown().await;
}

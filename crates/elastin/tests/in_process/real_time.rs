//! A cluster inside one process, as an application's own tests use it.

use std::time::{Duration, Instant};

use elastin::InProcess;
use elastin::prelude::*;
use elastin::types::{NotDelivered, Rejected};

/// Larger than the largest frame.
const TOO_LARGE: usize = 17 << 20;

const WAIT_MAX: Duration = Duration::from_secs(30);

/// Volatile: a crash loses its state.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Counter {
    value: u64,
}

#[handlers]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value += amount;
        self.value
    }

    fn measure(&self, text: String) -> usize {
        text.len()
    }

    fn recite(&mut self, bytes: usize) -> String {
        self.value += 1;
        "x".repeat(bytes)
    }
}

/// Persistent: its state survives a crash.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
struct Account {
    balance: u64,
}

#[handlers]
impl Account {
    fn deposit(&mut self, amount: u64) -> u64 {
        self.balance += amount;
        self.balance
    }
}

/// Never answers.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Silent {}

#[handlers]
impl Silent {
    async fn wait(&mut self) {
        std::future::pending().await
    }
}

/// Runs tests with and without busy-polling, which selects between two transports.
macro_rules! over_both_transports {
    ($($test:ident),+ $(,)?) => {
        mod busy_polling {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(true).await;
            })+
        }

        mod without_busy_poll {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(false).await;
            })+
        }
    };
}

over_both_transports!(
    actors_move_between_added_and_drained_servers,
    a_crash_loses_only_state_that_was_not_saved,
    messages_and_replies_that_are_too_large_are_rejected,
    calls_without_a_server_fail,
    running_and_queued_remote_calls_end_at_their_deadline,
);

async fn cluster(servers: u32, busy_polls: bool) -> InProcess {
    let mut app = Elastin::app().actor::<Counter>().actor::<Account>().actor::<Silent>();
    if !busy_polls {
        app = app.without_busy_poll();
    }
    let cluster = app.in_process().servers(servers).lease(Duration::from_secs(2));
    cluster.start().await.expect("the cluster starts")
}

async fn actors_move_between_added_and_drained_servers(busy_polls: bool) {
    let mut cluster = cluster(1, busy_polls).await;
    let counter = cluster.client().actor::<Counter>(7);
    assert_eq!(counter.add(1).await, Ok(1));
    let added = cluster.add_server().await.unwrap();
    cluster.move_actor(counter.id(), &added).await.unwrap();
    assert_eq!(counter.add(1).await, Ok(2));
    cluster.drain(&added).await.unwrap();
    assert_eq!(cluster.server_names(), ["server-1"]);
    assert_eq!(counter.add(1).await, Ok(3), "a drain loses nothing, saved or not");
    let unknown = cluster.drain(&added).await.unwrap_err();
    assert!(unknown.to_string().contains(&added), "{unknown}");
    cluster.shutdown().await;
}

async fn a_crash_loses_only_state_that_was_not_saved(busy_polls: bool) {
    let mut cluster = cluster(2, busy_polls).await;
    let (counter, account) = (
        cluster.client().actor::<Counter>(1),
        cluster.client().actor::<Account>(1),
    );
    for id in [counter.id(), account.id()] {
        assert_eq!(counter.add(1).await.is_ok(), account.deposit(5).await.is_ok());
        cluster.move_actor(id, "server-2").await.unwrap();
    }
    assert_eq!(account.deposit(0).await, Ok(10));
    assert!(cluster.crash("server-2").await);
    assert!(!cluster.crash("server-2").await, "there is no such server any more");
    // Calls in flight at the crash are in doubt. Once the lease has expired, the other server takes over.
    let began = Instant::now();
    while let Err(error) = account.deposit(0).deadline(Duration::from_secs(5)).await {
        assert!(began.elapsed() < WAIT_MAX, "{error}");
    }
    assert_eq!(account.deposit(1).await, Ok(11));
    assert_eq!(counter.add(1).await, Ok(1), "volatile state is lost");
    cluster.shutdown().await;
}

async fn messages_and_replies_that_are_too_large_are_rejected(busy_polls: bool) {
    let cluster = cluster(1, busy_polls).await;
    let counter = cluster.client().actor::<Counter>(1);
    let is_refused = |error: &CallError| matches!(error, CallError::Rejected(Rejected::TooLarge { bytes, .. }) if *bytes >= TOO_LARGE);
    let text = "x".repeat(TOO_LARGE);
    assert!(
        counter
            .measure(text.clone())
            .await
            .is_err_and(|error| is_refused(&error))
    );
    let with_value = counter.add(1).with_value("note", &text).await;
    assert!(with_value.is_err_and(|error| is_refused(&error)));
    assert_eq!(counter.add(0).await, Ok(0), "neither has run");
    assert!(counter.recite(TOO_LARGE).await.is_err_and(|error| is_refused(&error)));
    assert_eq!(counter.add(0).await, Ok(1), "only the reply was too large");
    assert_eq!(counter.measure("x".repeat(1 << 20)).await, Ok(1 << 20));
    cluster.shutdown().await;
}

async fn calls_without_a_server_fail(busy_polls: bool) {
    let app = Elastin::app().actor::<Counter>();
    let refused = app
        .in_process()
        .servers(0)
        .start()
        .await
        .err()
        .expect("a cluster needs a server");
    assert!(refused.to_string().contains("at least one server"), "{refused}");
    let twice = Elastin::app().actor::<Counter>().actor::<Counter>();
    let refused = twice
        .in_process()
        .start()
        .await
        .err()
        .expect("a type must be registered once");
    assert!(refused.to_string().contains("Counter"), "{refused}");
    let mut cluster = cluster(1, busy_polls).await;
    let counter = cluster.client().actor::<Counter>(1);
    assert_eq!(counter.add(1).await, Ok(1));
    assert!(cluster.crash("server-1").await);
    let failed = counter.add(1).deadline(Duration::from_secs(3)).await;
    let expected = |error: &CallError| {
        matches!(
            error,
            CallError::Unknown(_)
                | CallError::DeadlineExceeded
                | CallError::NotDelivered(NotDelivered::NoPlace | NotDelivered::Unreachable)
        )
    };
    assert!(failed.as_ref().is_err_and(expected), "{failed:?}");
    cluster.shutdown().await;
}

async fn running_and_queued_remote_calls_end_at_their_deadline(busy_polls: bool) {
    let cluster = cluster(1, busy_polls).await;
    let silent = cluster.client().actor::<Silent>(1);
    let call = || silent.wait().deadline(Duration::from_millis(50)).into_future();
    let both = async { tokio::join!(call(), call()) };
    let ended = tokio::time::timeout(WAIT_MAX, both).await.expect("they end");
    let late = || Err(CallError::DeadlineExceeded);
    assert_eq!(ended, (late(), late()));
    cluster.shutdown().await;
}

//! A cluster inside one process with a virtual clock.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use elastin::prelude::*;
use elastin::{InProcess, InProcessBuilder, TimeError};
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Notified when a turn that never ends has begun.
static WAITS: Notify = Notify::const_new();

/// Notified when a turn that blocks its thread has begun.
static COMPUTES: Notify = Notify::const_new();

/// Releases that turn.
static RELEASED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Sets timers and records their ticks in the journal.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Clockwork {
    rang: u32,
}

#[handlers]
impl Clockwork {
    fn ring_after(&mut self, ctx: &Ctx, after: Duration) {
        ctx.after(after, ctx.me::<Clockwork>().ring());
    }

    async fn ring(&mut self, ctx: &Ctx) {
        self.rang += 1;
        let name = ctx.key().to_string();
        // A call to another server, which must complete before the next timer is due.
        let noted = ctx.actor::<Journal>(0).note(name).await;
        noted.expect("the journal answers");
    }

    fn tick_every(&mut self, ctx: &Ctx, every: Duration) {
        ctx.every(every, ctx.me::<Clockwork>().tick());
    }

    fn tick(&mut self) {
        self.rang += 1;
    }

    fn rang(&self) -> u32 {
        self.rang
    }

    async fn never_answers(&self) {
        WAITS.notify_one();
        std::future::pending().await
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Journal {
    notes: Vec<String>,
}

#[handlers]
impl Journal {
    fn note(&mut self, name: String) {
        self.notes.push(name);
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// Reminds itself, and survives a crash.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
struct Subscription {
    renewed: u32,
}

#[handlers]
impl Subscription {
    async fn subscribe(&mut self, ctx: &Ctx) {
        let set = ctx.remind_every("renew", DAY).await;
        set.expect("the store answers");
    }

    #[on(reminder)]
    async fn renew(&mut self, _reminder: Reminder) {
        self.renewed += 1;
    }

    fn renewed(&self) -> u32 {
        self.renewed
    }
}

/// Waits for an event with a timeout.
async fn within<T>(label: &str, event: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(Duration::from_secs(30), event).await;
    result.unwrap_or_else(|_| panic!("timed out waiting for {label}"))
}

fn builder() -> InProcessBuilder {
    let app = Elastin::app()
        .actor::<Clockwork>()
        .actor::<Journal>()
        .actor::<Subscription>()
        .actor::<Stuck>();
    app.passivate_after(60 * DAY).in_process().servers(2).fake_time()
}

async fn cluster() -> InProcess {
    builder().start().await.expect("the cluster starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires_when_due_and_leases_are_renewed() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("tomorrow");
    clock.ring_after(DAY).await.unwrap();
    cluster.advance(DAY - HOUR).await.unwrap();
    assert_eq!(clock.rang().await, Ok(0), "it is an hour early");
    cluster.advance(HOUR).await.unwrap();
    assert_eq!(clock.rang().await, Ok(1));
    cluster.advance(DAY).await.unwrap();
    // Volatile state would be lost if a server had lost its lease meanwhile.
    assert_eq!(clock.rang().await, Ok(1));
    assert_eq!(cluster.server_names(), ["server-1", "server-2"]);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_timer_does_not_drift() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("ticks");
    clock.tick_every(Duration::from_secs(1)).await.unwrap();
    cluster.advance(Duration::from_secs(1_000)).await.unwrap();
    assert_eq!(clock.rang().await, Ok(1_000));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_different_servers_fire_in_the_order_of_their_times() {
    let mut cluster = cluster().await;
    let clocks: Vec<_> = (0..8).map(|n| cluster.client().actor::<Clockwork>(n)).collect();
    // Later timers are set first, and neighbours are on different servers.
    for (n, clock) in clocks.iter().enumerate().rev() {
        clock.ring_after(HOUR + MINUTE * n as u32).await.unwrap();
        let server = ["server-1", "server-2"][n % 2];
        // A move drops the timers of an activation, so the timer is set again on the target.
        cluster.move_actor(clock.id(), server).await.unwrap();
        clock.ring_after(HOUR + MINUTE * n as u32).await.unwrap();
    }
    cluster.advance(2 * HOUR).await.unwrap();
    let notes = cluster.client().actor::<Journal>(0).notes().await.unwrap();
    let mut sorted = notes.clone();
    sorted.sort();
    assert_eq!(notes, sorted);
    assert!(notes.len() >= clocks.len(), "{notes:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reminders_fire_when_due_also_after_a_crash() {
    let mut cluster = cluster().await;
    let subscription = cluster.client().actor::<Subscription>("paper");
    subscription.subscribe().await.unwrap();
    cluster.advance(DAY).await.unwrap();
    cluster.advance(MINUTE).await.unwrap();
    assert_eq!(subscription.renewed().await, Ok(1));
    assert!(cluster.crash("server-1").await);
    // Its lease expires meanwhile.
    cluster.advance(DAY).await.unwrap();
    assert_eq!(cluster.server_names(), ["server-2"]);
    assert_eq!(subscription.renewed().await, Ok(2));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_actor_is_passivated() {
    let app = Elastin::app().actor::<Journal>().passivate_after(HOUR);
    let cluster = app.in_process().fake_time().start().await;
    let mut cluster = cluster.unwrap();
    let journal = cluster.client().actor::<Journal>(0);
    journal.note("first".into()).await.unwrap();
    cluster.advance(HOUR / 2).await.unwrap();
    assert_eq!(journal.notes().await.unwrap(), ["first"], "it is in use");
    cluster.advance(3 * HOUR).await.unwrap();
    assert_eq!(journal.notes().await.unwrap(), [""; 0], "volatile state is lost");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_at_its_deadline_and_not_before() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("silent");
    let call = tokio::spawn({
        let clock = clock.clone();
        async move { clock.never_answers().deadline(HOUR).await }
    });
    within("the turn", WAITS.notified()).await;
    cluster.advance(HOUR - MINUTE).await.unwrap();
    assert!(!call.is_finished());
    cluster.advance(2 * MINUTE).await.unwrap();
    assert_eq!(call.await.unwrap(), Err(CallError::DeadlineExceeded));
    cluster.shutdown().await;
}

/// Blocks its thread until it is released.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Stuck {}

#[handlers]
impl Stuck {
    fn compute(&mut self) {
        COMPUTES.notify_one();
        let (released, changed) = &RELEASED;
        let guard = released.lock().unwrap();
        drop(changed.wait_while(guard, |released| !*released).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_stays_busy_is_named() {
    let timeout = Duration::from_millis(200);
    let mut cluster = builder().servers(1).settle_timeout(timeout).start().await.unwrap();
    let stuck = cluster.client().actor::<Stuck>(0);
    let call = tokio::spawn(async move { stuck.compute().deadline(10 * HOUR).await });
    within("the turn", COMPUTES.notified()).await;
    let error = cluster.advance(HOUR).await.expect_err("a turn is running");
    assert_eq!(error.to_string(), "an actor of server-1 is still busy after 200ms");
    *RELEASED.0.lock().unwrap() = true;
    RELEASED.1.notify_all();
    assert_eq!(call.await.unwrap(), Ok(()));
    cluster.advance(HOUR).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_time_can_not_be_advanced() {
    let app = Elastin::app().actor::<Journal>();
    let mut cluster = app.in_process().start().await.unwrap();
    let error = cluster.advance(HOUR).await.unwrap_err();
    assert!(matches!(error, TimeError::Real), "{error}");
    assert!(error.to_string().contains("fake_time()"));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advance_beyond_the_clocks_range_is_refused() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("distant");
    clock.ring_after(DAY).await.unwrap();
    for centuries in [300 * 365 * DAY, Duration::MAX] {
        let error = within("the refusal", cluster.advance(centuries)).await.unwrap_err();
        assert!(matches!(error, TimeError::TooFar { by } if by == centuries), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("it ends 292 years after the cluster's start"),
            "{error}"
        );
    }
    assert_eq!(clock.rang().await, Ok(0));
    cluster.advance(DAY).await.unwrap();
    assert_eq!(clock.rang().await, Ok(1));
    cluster.shutdown().await;
}

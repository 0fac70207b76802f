//! A cluster in one process whose time a test moves ahead.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use elastin::prelude::*;
use elastin::{InProcess, InProcessBuilder, TimeError};
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A turn has begun that never ends.
static WAITS: Notify = Notify::const_new();

/// A turn has begun that does not let its thread go on.
static COMPUTES: Notify = Notify::const_new();

/// It may.
static MAY_GO_ON: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Wakes up when it was told to, and says so to the journal.
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
        // A call to another server and back, before the next thing is due.
        let noted = ctx.actor::<Journal>(0).note(name).await;
        noted.expect("the journal is there");
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
        set.expect("the store is there");
    }

    #[on(reminder)]
    async fn renew(&mut self, _reminder: Reminder) {
        self.renewed += 1;
    }

    fn renewed(&self) -> u32 {
        self.renewed
    }
}

/// Waits for something that comes soon.
async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(Duration::from_secs(30), event).await;
    came.unwrap_or_else(|_| panic!("{what} did not come"))
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
async fn a_timer_of_tomorrow_rings_tomorrow_and_leases_are_kept() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("tomorrow");
    clock.ring_after(DAY).await.unwrap();
    cluster.advance(DAY - HOUR).await.unwrap();
    assert_eq!(clock.rang().await, Ok(0), "it is an hour early");
    cluster.advance(HOUR).await.unwrap();
    assert_eq!(clock.rang().await, Ok(1));
    cluster.advance(DAY).await.unwrap();
    // What is not saved would be gone if a server had lost its lease on the way.
    assert_eq!(clock.rang().await, Ok(1));
    assert_eq!(cluster.server_names(), ["server-1", "server-2"]);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_ticks_does_not_get_later_with_each_tick() {
    let mut cluster = cluster().await;
    let clock = cluster.client().actor::<Clockwork>("ticks");
    clock.tick_every(Duration::from_secs(1)).await.unwrap();
    cluster.advance(Duration::from_secs(1_000)).await.unwrap();
    assert_eq!(clock.rang().await, Ok(1_000));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_on_different_servers_ring_in_the_order_of_their_times() {
    let mut cluster = cluster().await;
    let clocks: Vec<_> = (0..8).map(|n| cluster.client().actor::<Clockwork>(n)).collect();
    // The later ones are set first, and neighbours are on different servers.
    for (n, clock) in clocks.iter().enumerate().rev() {
        clock.ring_after(HOUR + MINUTE * n as u32).await.unwrap();
        let server = ["server-1", "server-2"][n % 2];
        // A timer stays with the activation, so it is set where it rings.
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
async fn reminders_come_when_they_are_due_also_from_a_server_that_is_new_to_them() {
    let mut cluster = cluster().await;
    let subscription = cluster.client().actor::<Subscription>("paper");
    subscription.subscribe().await.unwrap();
    cluster.advance(DAY).await.unwrap();
    cluster.advance(MINUTE).await.unwrap();
    assert_eq!(subscription.renewed().await, Ok(1));
    assert!(cluster.crash("server-1").await);
    // Its lease runs out on the way.
    cluster.advance(DAY).await.unwrap();
    assert_eq!(cluster.server_names(), ["server-2"]);
    assert_eq!(subscription.renewed().await, Ok(2));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_nobody_calls_is_passivated() {
    let app = Elastin::app().actor::<Journal>().passivate_after(HOUR);
    let cluster = app.in_process().fake_time().start().await;
    let mut cluster = cluster.unwrap();
    let journal = cluster.client().actor::<Journal>(0);
    journal.note("first".into()).await.unwrap();
    cluster.advance(HOUR / 2).await.unwrap();
    assert_eq!(journal.notes().await.unwrap(), ["first"], "it is in use");
    cluster.advance(3 * HOUR).await.unwrap();
    assert_eq!(journal.notes().await.unwrap(), [""; 0], "what was not saved is gone");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_passes_when_its_time_has_come_and_not_before() {
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

/// Does not let its thread go on until it is allowed to.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Stuck {}

#[handlers]
impl Stuck {
    fn compute(&mut self) {
        COMPUTES.notify_one();
        let (may, changed) = &MAY_GO_ON;
        let guard = may.lock().unwrap();
        drop(changed.wait_while(guard, |may| !*may).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_does_not_keep_up_is_named() {
    let patient = Duration::from_millis(200);
    let mut cluster = builder().servers(1).retry_limit(patient).start().await.unwrap();
    let stuck = cluster.client().actor::<Stuck>(0);
    let call = tokio::spawn(async move { stuck.compute().deadline(10 * HOUR).await });
    within("the turn", COMPUTES.notified()).await;
    let error = cluster.advance(HOUR).await.expect_err("a turn is under way");
    assert_eq!(
        error.to_string(),
        "an actor of server-1 still has something to do after 200ms"
    );
    *MAY_GO_ON.0.lock().unwrap() = true;
    MAY_GO_ON.1.notify_all();
    assert_eq!(call.await.unwrap(), Ok(()));
    cluster.advance(HOUR).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_time_is_not_moved() {
    let app = Elastin::app().actor::<Journal>();
    let mut cluster = app.in_process().start().await.unwrap();
    let error = cluster.advance(HOUR).await.unwrap_err();
    assert!(matches!(error, TimeError::Real), "{error}");
    assert!(error.to_string().contains("fake_time()"));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_no_clock_shows_is_refused_and_nothing_moves() {
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

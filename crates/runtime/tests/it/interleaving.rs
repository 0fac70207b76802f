//! Handlers with `&self` that share their actor: they interleave where they suspend, and nothing else changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::common::pair::Pair;
use crate::common::{Gate, eventually, within};
use elastin::{Actor, CallFailed, Ctx, Ref, handlers};
use elastin_runtime::{FreezeError, Interest, Runtime, Settings};
use elastin_types::{ActivationEpoch, CallError, Unknown};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The gate with this name.
fn gate(name: &str) -> Arc<Gate> {
    static GATES: Mutex<BTreeMap<String, Arc<Gate>>> = Mutex::new(BTreeMap::new());
    let mut gates = GATES.lock().unwrap();
    gates
        .entry(name.into())
        .or_insert_with(|| Arc::new(Gate::new()))
        .clone()
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// How a chain of calls comes back to its first actor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
enum Back {
    Plain,
    Async,
    Waiting,
    Changing,
    TellFirst,
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Page {
    text: String,
    reads: AtomicU64,
}

#[handlers]
impl Page {
    fn write(&mut self, text: String) {
        self.text = text;
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    async fn read(&self, at: String) -> String {
        gate(&at).passed().await;
        self.text.clone()
    }

    /// Opens the gate of `other`, and waits until `other` has done the same.
    async fn meet(&self, me: String, other: String) -> String {
        gate(&other).open();
        gate(&me).passed().await;
        self.text.clone()
    }

    #[reentrant]
    async fn count(&self, at: String) -> u64 {
        gate(&at).passed().await;
        self.reads.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Calls `via`, which calls back.
    async fn gated_call_around(&self, ctx: &Ctx, via: Ref<Via>, at: String, back: Back) -> Result<String, CallError> {
        gate(&at).passed().await;
        match via.back(ctx.me(), back).await {
            Ok(text) => Ok(text),
            Err(CallFailed::Application(error) | CallFailed::Call(error)) => Err(error),
        }
    }

    async fn call_around(&self, ctx: &Ctx, via: Ref<Via>, back: Back) -> Result<String, CallError> {
        match via.back(ctx.me(), back).await {
            Ok(text) => Ok(text),
            Err(CallFailed::Application(error) | CallFailed::Call(error)) => Err(error),
        }
    }

    async fn recurse(&self, ctx: &Ctx, depth: u64) -> Result<u64, (CallError, u64)> {
        match ctx.me::<Page>().recurse(depth + 1).await {
            Ok(_) => unreachable!("the recursion never ends by itself"),
            Err(CallFailed::Application(end)) => Err(end),
            Err(CallFailed::Call(error)) => Err((error, depth)),
        }
    }

    async fn fail(&self, at: String) {
        gate(&at).passed().await;
        panic!("requested by the test");
    }

    fn fail_at_once(&self) {
        panic!("requested by the test");
    }

    #[reentrant]
    async fn fail_changing(&self, at: String) {
        gate(&at).passed().await;
        panic!("requested by the test");
    }

    async fn leave(&self, ctx: &Ctx, at: String) {
        ctx.deactivate();
        gate(&at).passed().await;
    }

    async fn values(&self, ctx: &Ctx, at: String) -> (Option<String>, Option<String>) {
        let before = ctx.request_value("user");
        gate(&at).passed().await;
        (before, ctx.request_value("user"))
    }

    /// Computes before and after it suspends.
    async fn compute(&self, at: String) {
        burn();
        gate(&at).passed().await;
        burn();
    }

    /// Discards its own activation while it runs.
    async fn lose(&self, ctx: &Ctx, at: String) {
        gate(&at).passed().await;
        let runtime = RUNTIME.get().expect("the test has set the runtime");
        runtime.discard(&ctx.id(), ActivationEpoch::default());
    }
}

const BURN: Duration = Duration::from_millis(2);

/// Uses this much CPU time, however busy the machine is.
fn burn() {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("CPU clocks never go back");
    let before = used();
    while used() - before < BURN {
        std::hint::spin_loop();
    }
}

/// Calls back its caller.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Via {}

#[handlers]
impl Via {
    async fn back(&mut self, page: Ref<Page>, back: Back) -> Result<String, CallError> {
        match back {
            Back::Plain => page.text().await,
            Back::Async => page.read("open".into()).await,
            Back::Waiting => {
                tokio::task::yield_now().await;
                page.read("open".into()).await
            }
            Back::Changing => page.write("changed".into()).await.map(|()| String::new()),
            Back::TellFirst => {
                page.write("tell".into()).try_tell()?;
                page.text().await
            }
        }
    }
}

fn runtime(workers: usize) -> Runtime {
    gate("open").open();
    let builder = Runtime::builder().register::<Page>().register::<Via>();
    builder.register::<Checked>().workers(workers).build().unwrap()
}

async fn written(runtime: &Runtime, key: &str) -> Ref<Page> {
    let page: Ref<Page> = runtime.client().actor(key);
    page.write("first".into()).await.unwrap();
    page
}

/// Starts a call without waiting for its end.
macro_rules! spawn {
    ($page:ident.$function:ident($($argument:expr),*)) => {{
        let page = $page.clone();
        tokio::spawn(async move { page.$function($($argument.into()),*).await })
    }};
}

#[tokio::test]
async fn interleaved_readers_can_wait_for_each_other() {
    let runtime = runtime(1);
    let page = written(&runtime, "meet").await;
    let one = spawn!(page.meet("meet 1", "meet 2"));
    let two = spawn!(page.meet("meet 2", "meet 1"));
    assert_eq!(within("the first", one).await.unwrap(), Ok("first".into()));
    assert_eq!(within("the second", two).await.unwrap(), Ok("first".into()));
}

#[tokio::test]
async fn a_writer_waits_for_readers_and_holds_up_later_ones() {
    let runtime = runtime(2);
    let page = written(&runtime, "between").await;
    let before = spawn!(page.read("between"));
    within("the reader", gate("between").reached(1)).await;
    page.write("second".into()).try_tell().unwrap();
    let after = spawn!(page.read("after"));
    let plain = spawn!(page.text());
    eventually("the queue", || runtime.stats().queued == 0).await;
    gate("between").open();
    assert_eq!(within("the first reader", before).await.unwrap(), Ok("first".into()));
    gate("after").open();
    assert_eq!(within("the later reader", after).await.unwrap(), Ok("second".into()));
    assert_eq!(within("the plain reader", plain).await.unwrap(), Ok("second".into()));
    assert_eq!(
        page.text().await,
        Ok("second".into()),
        "the actor must be exclusive again"
    );
}

static READING: AtomicU32 = AtomicU32::new(0);
static READING_MAX: AtomicU32 = AtomicU32::new(0);
static WRITING: AtomicBool = AtomicBool::new(false);
static POLLED: AtomicBool = AtomicBool::new(false);

/// Detects turns that overlap although they must not.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Checked {
    writes: u64,
}

/// Asserts that no other turn runs between two suspensions.
fn assert_alone() {
    assert!(!POLLED.swap(true, Ordering::SeqCst), "two turns ran concurrently");
    std::hint::spin_loop();
    POLLED.store(false, Ordering::SeqCst);
}

#[handlers]
impl Checked {
    async fn read(&self, waits: u32) -> u64 {
        let reading = READING.fetch_add(1, Ordering::SeqCst) + 1;
        READING_MAX.fetch_max(reading, Ordering::SeqCst);
        let seen = self.writes;
        for _ in 0..waits {
            assert_alone();
            assert!(!WRITING.load(Ordering::SeqCst), "a writer beside a reader");
            tokio::task::yield_now().await;
        }
        assert_eq!(self.writes, seen);
        READING.fetch_sub(1, Ordering::SeqCst);
        seen
    }

    fn read_plain(&self) -> u64 {
        assert_alone();
        assert!(!WRITING.load(Ordering::SeqCst), "a writer beside a reader");
        self.writes
    }

    async fn write(&mut self, wait: bool) -> u64 {
        assert!(!WRITING.swap(true, Ordering::SeqCst), "two writers");
        assert_eq!(READING.load(Ordering::SeqCst), 0, "a reader beside a writer");
        assert_alone();
        if wait {
            tokio::task::yield_now().await;
        }
        self.writes += 1;
        WRITING.store(false, Ordering::SeqCst);
        self.writes
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_interleave_and_writers_are_exclusive() {
    const CALLERS: u32 = 8;
    const CALLS: u32 = 1500;
    let runtime = runtime(4);
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let checked: Ref<Checked> = runtime.client().actor(0);
        callers.push(tokio::spawn(async move {
            for call in 0..CALLS {
                match (caller + call) % 8 {
                    0 => drop(checked.write(call % 3 == 0).await.unwrap()),
                    1 => drop(checked.read_plain().await.unwrap()),
                    2 => checked.read(1).tell().await.unwrap(),
                    _ => drop(checked.read(call % 4).await.unwrap()),
                }
            }
        }));
    }
    for caller in callers {
        within("all calls", caller).await.unwrap();
    }
    let checked: Ref<Checked> = runtime.client().actor(0);
    let writes = u64::from(CALLERS * CALLS / 8);
    assert_eq!(
        within("the last", checked.write(false).into_future()).await,
        Ok(writes + 1)
    );
    assert_eq!(runtime.stats().panics, 0);
    assert!(READING_MAX.load(Ordering::SeqCst) > 1, "readers never interleaved");
}

#[tokio::test]
async fn a_call_chain_may_return_to_a_reader() {
    let runtime = runtime(2);
    let page = written(&runtime, "cycle").await;
    let via: Ref<Via> = runtime.client().actor("via");
    for back in [Back::Plain, Back::Async, Back::Waiting] {
        let at_once = page.call_around(via.clone(), back).into_future();
        assert_eq!(within("the way back", at_once).await, Ok("first".into()), "{back:?}");
        let later = page.gated_call_around(via.clone(), format!("cycle {back:?}"), back);
        gate(&format!("cycle {back:?}")).open();
        assert_eq!(
            within("the way back", later.into_future()).await,
            Ok("first".into()),
            "{back:?}"
        );
    }
    let cycle = Err(CallFailed::Application(CallError::CallCycle));
    for back in [Back::Changing, Back::TellFirst] {
        let at_once = page.call_around(via.clone(), back).into_future();
        assert_eq!(within("the way back", at_once).await, cycle, "{back:?}");
        // The one-way message sent before still arrives.
        let text = within("the text", page.text().into_future()).await;
        assert_eq!(text, Ok(if back == Back::TellFirst { "tell" } else { "first" }.into()));
        page.write("first".into()).await.unwrap();
    }
    assert_eq!(runtime.stats().panics, 0);
}

#[tokio::test]
async fn a_returning_chain_overtakes_a_waiting_writer() {
    let runtime = runtime(2);
    let page = written(&runtime, "overtakes").await;
    let via: Ref<Via> = runtime.client().actor("via");
    for back in [Back::Plain, Back::Async, Back::Waiting] {
        let name = format!("overtakes {back:?}");
        let around = tokio::spawn({
            let (page, via, name) = (page.clone(), via.clone(), name.clone());
            async move { page.gated_call_around(via, name, back).await }
        });
        within("the reader", gate(&name).reached(1)).await;
        page.write("second".into()).try_tell().unwrap();
        gate(&name).open();
        assert_eq!(
            within("the way back", around).await.unwrap(),
            Ok("first".into()),
            "{back:?}"
        );
        assert_eq!(within("the text", page.text().into_future()).await, Ok("second".into()));
        page.write("first".into()).await.unwrap();
    }
}

#[tokio::test]
async fn endless_recursion_ends_with_an_error() {
    let runtime = runtime(1);
    let page = written(&runtime, "endless").await;
    let outcome = within("the end", page.recurse(0).into_future()).await;
    let Err(CallFailed::Application((error, depth))) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(error, CallError::CallCycle);
    assert!(depth >= 1000, "{depth}");
    assert_eq!(within("the text", page.text().into_future()).await, Ok("first".into()));
}

#[tokio::test]
async fn a_call_chain_may_return_from_another_node() {
    gate("open").open();
    let pair = Pair::start(|builder| builder.register::<Page>().register::<Via>());
    let client = pair.runtime(0).client();
    let (page, via): (Ref<Page>, Ref<Via>) = (client.actor("page"), client.actor("via"));
    page.write("first".into()).await.unwrap();
    for back in [Back::Plain, Back::Async] {
        assert_eq!(page.call_around(via.clone(), back).await, Ok("first".into()));
        assert!(pair.move_over(via.id(), Duration::from_secs(10)).await);
        let far = page.call_around(via.clone(), back).into_future();
        assert_eq!(within("the way back", far).await, Ok("first".into()), "{back:?}");
    }
    let changing = page.call_around(via.clone(), Back::Changing).into_future();
    let cycle = Err(CallFailed::Application(CallError::CallCycle));
    assert_eq!(within("the way back", changing).await, cycle);
    pair.stop().await;
}

fn freeze(
    runtime: &Runtime,
    page: &Ref<Page>,
    wait_max: Duration,
) -> tokio::sync::oneshot::Receiver<Result<elastin_runtime::StateImage, FreezeError>> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let epoch = runtime.active(page.id()).expect("the actor is active");
    let done = Box::new(move |image| drop(sender.send(image)));
    runtime.freeze(page.id(), epoch, runtime.now() + wait_max, done);
    receiver
}

#[tokio::test]
async fn a_freeze_waits_for_readers_and_admits_no_others() {
    let runtime = runtime(2);
    let page = written(&runtime, "freeze").await;
    let reader = spawn!(page.read("freeze"));
    within("the reader", gate("freeze").reached(1)).await;
    let mut image = freeze(&runtime, &page, Duration::from_secs(60));
    let late = spawn!(page.read("freeze late"));
    let via: Ref<Via> = runtime.client().actor("via");
    assert!(image.try_recv().is_err(), "frozen while a reader is suspended");
    gate("freeze").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
    assert!(within("the freeze", image).await.unwrap().is_ok());
    gate("freeze late").open();
    tokio::task::yield_now().await;
    assert!(!late.is_finished(), "a frozen actor ran");
    assert!(runtime.resume(page.id(), ActivationEpoch::default()));
    assert_eq!(within("the late reader", late).await.unwrap(), Ok("first".into()));
    // A call that a reader waits for starts nevertheless, or the freeze would wait forever.
    let around = tokio::spawn({
        let page = page.clone();
        async move { page.gated_call_around(via, "freeze around".into(), Back::Waiting).await }
    });
    within("the reader", gate("freeze around").reached(1)).await;
    let image = freeze(&runtime, &page, Duration::from_secs(60));
    gate("freeze around").open();
    assert_eq!(within("the way back", around).await.unwrap(), Ok("first".into()));
    assert!(within("the freeze", image).await.unwrap().is_ok());
}

#[tokio::test]
async fn readers_continue_after_a_freeze_times_out() {
    let runtime = runtime(1);
    let page = written(&runtime, "busy").await;
    let reader = spawn!(page.read("busy"));
    within("the reader", gate("busy").reached(1)).await;
    let image = freeze(&runtime, &page, Duration::from_millis(20));
    let late = spawn!(page.read("open"));
    assert_eq!(within("the freeze", image).await.unwrap(), Err(FreezeError::Busy));
    assert_eq!(within("the late reader", late).await.unwrap(), Ok("first".into()));
    gate("busy").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
}

#[tokio::test]
async fn a_panic_in_a_reader_does_not_affect_others() {
    let runtime = runtime(1);
    let page = written(&runtime, "fail").await;
    assert_eq!(page.fail_at_once().await, Err(CallError::Panicked));
    page.fail_at_once().tell().await.unwrap();
    assert_eq!(
        within("the outcome", page.fail("open".into()).into_future()).await,
        Err(CallError::Panicked)
    );
    let reader = spawn!(page.read("fail"));
    within("the reader", gate("fail").reached(1)).await;
    let failing = spawn!(page.fail("fail 2"));
    let plain = spawn!(page.fail_at_once());
    gate("fail 2").open();
    assert_eq!(within("the outcome", failing).await.unwrap(), Err(CallError::Panicked));
    assert_eq!(within("the outcome", plain).await.unwrap(), Err(CallError::Panicked));
    gate("fail").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
    assert_eq!(page.text().await, Ok("first".into()));
    assert_eq!(runtime.stats().panics, 5);
}

#[tokio::test]
async fn a_panic_in_a_reentrant_turn_restarts_the_actor() {
    let runtime = runtime(1);
    let page = written(&runtime, "broken").await;
    // Alone: from the mailbox, and on the caller's thread.
    page.fail_changing("open".into()).tell().await.unwrap();
    assert_eq!(within("the text", page.text().into_future()).await, Ok(String::new()));
    page.write("first".into()).await.unwrap();
    let inline = within("the outcome", page.fail_changing("open".into()).into_future()).await;
    assert_eq!(inline, Err(CallError::Panicked));
    assert_eq!(within("the text", page.text().into_future()).await, Ok(String::new()));
    // Interleaved with others.
    page.write("first".into()).await.unwrap();
    let reader = spawn!(page.read("broken"));
    within("the reader", gate("broken").reached(1)).await;
    let failing = spawn!(page.fail_changing("broken 2"));
    within("the other", gate("broken 2").reached(1)).await;
    page.write("behind".into()).try_tell().unwrap();
    gate("broken 2").open();
    assert_eq!(within("the outcome", failing).await.unwrap(), Err(CallError::Panicked));
    assert_eq!(within("the outcome", reader).await.unwrap(), Err(CallError::Panicked));
    let text = within("the text", page.text().into_future()).await;
    assert_eq!(
        text,
        Ok("behind".into()),
        "queued messages must run in the next activation"
    );
}

#[tokio::test]
async fn discarding_an_activation_fails_its_readers() {
    let runtime = runtime(1);
    assert!(RUNTIME.set(runtime.clone()).is_ok());
    let page = written(&runtime, "discard").await;
    let lost = Err(CallError::Unknown(Unknown::NodeLost));
    let reader = spawn!(page.read("discard"));
    within("the reader", gate("discard").reached(1)).await;
    page.write("not begun".into()).try_tell().unwrap();
    let messages = runtime.discard(page.id(), ActivationEpoch::default());
    assert_eq!(messages.len(), 1, "the message that had not begun");
    assert_eq!(within("the outcome", reader).await.unwrap(), lost);
    assert_eq!(page.text().await, Ok(String::new()), "a new activation");
    // While one of them runs, on the caller's thread and on a worker.
    let lose = within("the outcome", page.lose("open".into()).into_future()).await;
    assert_eq!(lose, Err(CallError::Unknown(Unknown::NodeLost)));
    assert_eq!(within("the text", page.text().into_future()).await, Ok(String::new()));
    let reader = spawn!(page.read("discard 2"));
    within("the reader", gate("discard 2").reached(1)).await;
    let losing = spawn!(page.lose("discard 3"));
    within("the other", gate("discard 3").reached(1)).await;
    gate("discard 3").open();
    assert_eq!(
        within("the outcome", reader).await.unwrap(),
        Err(CallError::Unknown(Unknown::NodeLost))
    );
    assert_eq!(
        within("the outcome", losing).await.unwrap(),
        Err(CallError::Unknown(Unknown::NodeLost))
    );
    assert_eq!(within("the text", page.text().into_future()).await, Ok(String::new()));
}

#[tokio::test]
async fn an_activation_ends_after_its_last_reader() {
    let runtime = runtime(1);
    let page = written(&runtime, "leave").await;
    let reader = spawn!(page.read("leave"));
    let leaving = spawn!(page.leave("leave 2"));
    within("the reader", gate("leave").reached(1)).await;
    within("the other", gate("leave 2").reached(1)).await;
    gate("leave 2").open();
    within("the end of that turn", leaving).await.unwrap().unwrap();
    assert!(runtime.active(page.id()).is_some(), "a reader is still suspended");
    gate("leave").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
    eventually("the end of the activation", || runtime.active(page.id()).is_none()).await;
}

#[tokio::test]
async fn interleaved_turns_keep_their_own_request_values() {
    let runtime = runtime(1);
    let page = written(&runtime, "values").await;
    let ask = |user: &'static str| {
        let page = page.clone();
        tokio::spawn(async move {
            let call = page.values("values".into()).with_value("user", user);
            (user, call.await.unwrap())
        })
    };
    let asked = ["ada", "eve", "kim"].map(ask);
    within("all of them", gate("values").reached(3)).await;
    gate("values").open();
    for asking in asked {
        let (user, (before, after)) = within("the values", asking).await.unwrap();
        assert_eq!((before.as_deref(), after.as_deref()), (Some(user), Some(user)));
    }
}

#[tokio::test]
async fn abandoned_readers_do_not_start() {
    let runtime = runtime(1);
    let page = written(&runtime, "cancel").await;
    let reader = spawn!(page.read("cancel"));
    within("the reader", gate("cancel").reached(1)).await;
    // A queued writer holds up later readers.
    page.write("second".into()).try_tell().unwrap();
    let late = page.read("cancel late".into()).deadline(Duration::from_millis(5));
    assert_eq!(late.await, Err(CallError::DeadlineExceeded));
    let dropped = spawn!(page.read("cancel late"));
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(within("the end", dropped).await.unwrap_err().is_cancelled());
    let counted = spawn!(page.count("open"));
    gate("cancel").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
    assert_eq!(within("the last", counted).await.unwrap(), Ok(1));
    // Neither reached its gate.
    assert_eq!(gate("cancel late").count(), 0, "an abandoned call ran");
    // A started turn finishes.
    let begun = spawn!(page.count("cancel begun"));
    within("the turn", gate("cancel begun").reached(1)).await;
    begun.abort();
    gate("cancel begun").open();
    within("its effect", async { while page.reads().await.unwrap() < 2 {} }).await;
}

#[tokio::test]
async fn readers_above_the_limit_wait_in_the_mailbox() {
    const INTERLEAVED_MAX: usize = 1024;
    const MORE: usize = 500;
    let runtime = runtime(2);
    let page = written(&runtime, "many").await;
    // No more than a mailbox holds, because it is unknown how quickly readers start.
    let mut readers: Vec<_> = (0..INTERLEAVED_MAX).map(|_| spawn!(page.read("many"))).collect();
    within("the maximum number of readers", gate("many").reached(INTERLEAVED_MAX)).await;
    readers.extend((0..MORE).map(|_| spawn!(page.read("many"))));
    gate("many").open();
    for reader in readers {
        assert_eq!(within("a reader", reader).await.unwrap(), Ok("first".into()));
    }
    assert_eq!(page.text().await, Ok("first".into()));
}

#[tokio::test]
async fn cpu_time_of_interleaved_turns_is_counted_once() {
    const TURNS: u32 = 8;
    let runtime = runtime(1);
    let page = written(&runtime, "profile").await;
    runtime.snapshot(&Interest::All);
    let begun = Instant::now();
    let turns: Vec<_> = (0..TURNS).map(|_| spawn!(page.compute("profile"))).collect();
    within("all of them", gate("profile").reached(TURNS as usize)).await;
    gate("profile").open();
    for turn in turns {
        within("a turn", turn).await.unwrap().unwrap();
    }
    let (elapsed, snapshot) = (begun.elapsed(), runtime.snapshot(&Interest::All));
    let stats = snapshot.actors.iter().find(|stats| stats.actor == *page.id());
    let stats = stats.expect("the actor was active");
    assert_eq!(
        stats.calls_in.iter().map(|call| call.count).sum::<u64>(),
        u64::from(TURNS)
    );
    assert!(stats.used.mem > 0.0, "the state must have a size");
    let busy = Duration::from_secs_f64(stats.used.cpu / 1000.0 * snapshot.period.as_secs_f64());
    // As long as they computed, and no longer than the elapsed time: they never run concurrently.
    assert!(
        busy >= 2 * BURN * TURNS * 9 / 10 && busy <= elapsed * 11 / 10,
        "{busy:?} of {elapsed:?}"
    );
}

#[tokio::test]
async fn a_shutdown_waits_for_readers() {
    let runtime = runtime(1);
    let page = written(&runtime, "shutdown").await;
    let reader = spawn!(page.read("shutdown"));
    within("the reader", gate("shutdown").reached(1)).await;
    let ending = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(Duration::from_secs(20)).await }
    });
    tokio::task::yield_now().await;
    gate("shutdown").open();
    assert_eq!(within("the reader", reader).await.unwrap(), Ok("first".into()));
    assert!(
        within("the end", ending).await.unwrap(),
        "the shutdown must drain in time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_survive_races_with_all_operations() {
    const CALLERS: u64 = 6;
    const CALLS: u64 = 600;
    let settings = Settings {
        workers: 3,
        idle_max: Some(Duration::from_millis(1)),
        ..Default::default()
    };
    gate("open").open();
    let builder = Runtime::builder().register::<Page>().register::<Via>();
    let runtime = builder.settings(settings).build().unwrap();
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let page: Ref<Page> = runtime.client().actor("race");
        let runtime = runtime.clone();
        callers.push(tokio::spawn(async move {
            for call in 0..CALLS {
                // Every call must end, whatever its outcome.
                match (caller + call) % 9 {
                    0 => drop(page.write("again".into()).await),
                    1 => {
                        // A different actor each time: the previous one may still be in a turn that was discarded.
                        let via = runtime.client().actor(caller * CALLS + call);
                        drop(page.call_around(via, Back::Waiting).await);
                    }
                    2 => drop(page.fail_changing("open".into()).await),
                    3 => drop(page.leave("open".into()).await),
                    4 => drop(runtime.discard(page.id(), ActivationEpoch::default())),
                    5 => {
                        if runtime.active(page.id()).is_some() {
                            let done = Box::new(|_| ());
                            let deadline = runtime.now() + Duration::from_millis(1);
                            runtime.freeze(page.id(), ActivationEpoch::default(), deadline, done);
                            runtime.resume(page.id(), ActivationEpoch::default());
                        }
                    }
                    6 => drop(page.count("open".into()).await),
                    _ => {
                        let read = page.read("open".into()).deadline(Duration::from_secs(20));
                        assert_ne!(read.await, Err(CallError::DeadlineExceeded), "a call hung");
                    }
                }
            }
        }));
    }
    for caller in callers {
        within("all calls", caller).await.unwrap();
    }
    let page: Ref<Page> = runtime.client().actor("race");
    let last = within("the last", page.write("last".into()).into_future()).await;
    assert_eq!(last, Ok(()));
    assert!(runtime.shutdown(Duration::from_secs(20)).await);
}

//! Calls of callers that were completed together.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use elastin_actor::ReplySender;
use elastin_types::Time;
use parking_lot::Mutex;

use super::*;
use crate::serial_executor::tests::{Recorder, actor, call, end, serial_executor, tell};

/// A fast path over an executor that records commands.
struct Client {
    fast_path: ClientFastPath,
    node: SerialExecutor,
    executor: Recorder,
    /// The calls whose callers were notified.
    outcomes: Arc<Mutex<Vec<u64>>>,
}

impl Client {
    /// A client with some pending calls.
    fn with_calls(calls: u64) -> Self {
        let executor = Recorder::default();
        let client = Self {
            fast_path: ClientFastPath::default(),
            node: serial_executor(&executor),
            executor,
            outcomes: Arc::default(),
        };
        for key in 1..=calls {
            let outcomes = Arc::clone(&client.outcomes);
            let caller = ReplySender::new(move |_| outcomes.lock().push(key));
            client.send(Input::of_call(call(key), Some(caller)));
        }
        client.executor.needed.lock().clear();
        client
    }

    /// A client whose calls have just been completed together.
    fn batching(calls: u64) -> Self {
        let client = Self::with_calls(calls);
        assert_eq!(client.complete(calls, Waker::noop()), Some(1));
        client
    }

    /// Completes its calls. Returns the number of the batch that begins.
    fn complete(&self, calls: u64, task: &Waker) -> Option<u64> {
        let events = (1..=calls).map(end);
        self.fast_path
            .handle_and_batch(&self.node, events, task, &self.executor)
    }

    fn send(&self, input: Input) {
        self.fast_path.send(&self.node, input, &self.executor);
    }

    fn tell(&self, key: u64) {
        self.send(tell(key).into());
    }

    fn send_batch(&self, keep_batching: bool) -> bool {
        self.fast_path.send_batch(&self.node, keep_batching, &self.executor)
    }

    /// Handles the timer.
    fn wake(&self) {
        self.node.handle(Event::Timer.into(), &self.executor);
        self.fast_path.wake_overdue(&self.executor);
    }

    /// Checks which messages were handled, and how many are enqueued.
    fn check(&self, handled: &[u64], queued: usize) {
        let expected: Vec<_> = handled.iter().map(|key| actor(*key)).collect();
        assert_eq!((&*self.executor.needed.lock(), self.node.queued()), (&expected, queued));
    }
}

#[test]
fn calls_after_a_batch_of_outcomes_are_handled_together() {
    let client = Client::batching(3);
    assert_eq!(*client.outcomes.lock(), [1, 2, 3]);
    client.executor.wakes_at.set(None);
    client.tell(5);
    client.tell(6);
    client.check(&[], 2);
    let timer = client.executor.wakes_at.get();
    assert_eq!(
        timer,
        Some(Time::ZERO + BATCH_WAIT_MAX),
        "in case the task does not run"
    );
    assert!(client.send_batch(true), "one caller has not sent");
    client.check(&[5, 6], 0);
    client.tell(7);
    client.check(&[5, 6], 1);
    assert!(!client.send_batch(true), "all callers have sent");
    client.tell(8);
    client.check(&[5, 6, 7, 8], 0);
}

#[test]
fn batching_ends_with_an_empty_batch() {
    let client = Client::batching(3);
    client.tell(5);
    assert!(client.send_batch(true));
    assert!(!client.send_batch(true), "no further call");
    client.tell(6);
    client.check(&[5, 6], 0);
}

#[test]
fn the_end_of_a_batch_sends_its_calls() {
    let client = Client::batching(2);
    client.tell(5);
    assert!(!client.send_batch(false));
    client.tell(6);
    client.check(&[5, 6], 0);
}

#[test]
fn a_full_batch_is_handled_at_once() {
    let client = Client::batching(2);
    let keys: Vec<u64> = (100..100 + BATCHED_CALLS_MAX as u64).collect();
    keys.iter().for_each(|key| client.tell(*key));
    client.check(&keys, 0);
}

#[test]
fn other_events_are_handled_after_the_enqueued_calls() {
    let client = Client::batching(2);
    client.tell(5);
    client.node.handle(tell(6).into(), &client.executor);
    client.check(&[5, 6], 0);
}

#[test]
fn a_lone_caller_sends_its_next_call_itself() {
    let client = Client::with_calls(1);
    assert_eq!(client.complete(1, Waker::noop()), None);
    assert_eq!(*client.outcomes.lock(), [1]);
    client.tell(2);
    client.check(&[2], 0);
}

/// Counts its wakes.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn overdue_wakes_are_made_by_the_timer() {
    let client = Client::with_calls(2);
    let began = Time(1_000_000_000);
    client.executor.now.set(began);
    let woken = Arc::new(Woken::default());
    let wakes = || woken.0.load(Ordering::SeqCst);
    assert!(client.complete(2, &Waker::from(Arc::clone(&woken))).is_some());
    assert_eq!(wakes(), 1, "outside tokio the wake is not deferred");
    client.tell(5);
    // The timer may have been set for other events before.
    client.executor.now.set(began + BATCH_WAIT_MAX / 2);
    client.wake();
    assert_eq!((client.node.queued(), wakes()), (0, 1), "the wake is not overdue");
    assert_eq!(client.executor.wakes_at.get(), Some(began + BATCH_WAIT_MAX));
    client.executor.now.set(began + BATCH_WAIT_MAX);
    client.wake();
    assert_eq!(wakes(), 2);
    assert!(!client.send_batch(true));
    client.wake();
    assert_eq!(wakes(), 2, "the batch has ended");
}

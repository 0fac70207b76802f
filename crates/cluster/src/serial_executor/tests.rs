//! A executor whose executor fail, and one that is left alone for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Wake;

use elastin_protocol::{Limits, Member, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, ActorType, CallId, NodeId, SlotEpoch, Unknown};

use super::*;

const ME: NodeId = NodeId(1);

/// Panics at the first of these, and notes the others.
#[derive(Default)]
struct Panicking {
    now: Cell<Time>,
    to_fail: Cell<bool>,
    needed: Mutex<Vec<ActorId>>,
    stops: Cell<u32>,
    wakes_at: Cell<Option<Time>>,
}

impl CommandExecutor for Panicking {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn execute(&self, command: Command, _: &mut CommandContext) {
        if let Command::NeedPlacement { actor, .. } = command {
            assert!(!self.to_fail.take(), "on purpose");
            self.needed.lock().push(actor);
        }
    }

    fn stopped(&self) {
        self.stops.set(self.stops.get() + 1);
    }

    fn wake_at(&self, at: Option<Time>) {
        self.wakes_at.set(at.or(self.wakes_at.get()));
    }
}

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

/// A server that is alone and owns the directory.
fn serial_executor(executor: &Panicking) -> SerialExecutor {
    let serial_executor = SerialExecutor::new(Node::new(NodeConfig {
        me: ME,
        hosts: true,
        limits: Limits::default(),
    }));
    let members: BTreeMap<NodeId, Member> = [(ME, Member::SERVER)].into();
    let view = View {
        revision: 1,
        members: Arc::new(members),
        slots: SlotTable::owned_by(ME, SlotEpoch(1)),
    };
    serial_executor.handle(Event::MayActUntil(Time(u64::MAX)).into(), executor);
    serial_executor.handle(Event::View(view).into(), executor);
    serial_executor
}

/// A tell to this actor, which is nowhere yet.
fn tell(key: u64) -> Event {
    message(key, true)
}

/// A call to this actor, which is nowhere yet.
fn call(key: u64) -> Event {
    message(key, false)
}

/// The end of a call to this actor.
fn end(key: u64) -> Event {
    Event::GiveUp { call: call_id(key) }
}

fn call_id(key: u64) -> CallId {
    CallId {
        origin: ME,
        sequence: key,
    }
}

fn message(key: u64, one_way: bool) -> Event {
    use elastin_types::{Caller, Header, Message, Method};
    let call = call_id(key);
    let header = Header {
        one_way,
        ..Header::of_call(call, Caller::Client(ME))
    };
    let message = Message {
        target: actor(key),
        header,
        method: Method::of("open"),
        body: bytes::Bytes::new(),
    };
    Event::Send {
        message: Arc::new(message),
    }
}

#[test]
fn a_panic_stops_the_executor_and_fails_every_call() {
    let executor = Panicking::default();
    let serial_executor = serial_executor(&executor);
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let caller = |key| {
        let outcomes = Arc::clone(&outcomes);
        ReplySender::new(move |outcome| outcomes.lock().push((key, outcome)))
    };
    serial_executor.handle(Input::of_call(call(1), Some(caller(1))), &executor);
    executor.to_fail.set(true);
    serial_executor.handle_all([tell(2), tell(3)], &executor);
    assert_eq!(executor.stops.get(), 1);
    assert_eq!(*executor.needed.lock(), [actor(1)], "nothing is carried out any more");
    // A thread that still seemed to drain would leave this to itself for ever.
    serial_executor.handle_now(Input::of_call(call(4), Some(caller(4))), &executor);
    assert_eq!(
        *outcomes.lock(),
        [
            (1, Err(CallError::Unknown(Unknown::NodeLost))),
            (4, Err(CallError::NotDelivered(NotDelivered::Unreachable))),
        ]
    );
    assert_eq!((serial_executor.queued(), executor.stops.get()), (0, 1));
}

#[test]
fn a_panic_while_events_are_made_wedges_no_thread() {
    let executor = Panicking::default();
    let serial_executor = serial_executor(&executor);
    let events = std::iter::once_with(|| panic!("on purpose"));
    let ended = catch_unwind(AssertUnwindSafe(|| serial_executor.handle_all(events, &executor)));
    assert!(ended.is_err());
    serial_executor.handle_now(tell(3).into(), &executor);
    assert_eq!(*executor.needed.lock(), [actor(3)]);
}

/// A executor with calls that have just ended, so many of them. Whoever has called hears of it here.
fn call_batching(executor: &Panicking, calls: u64) -> (SerialExecutor, Arc<Mutex<Vec<u64>>>) {
    let (serial_executor, outcomes) = (serial_executor(executor), Arc::default());
    for key in 1..=calls {
        serial_executor.send(Input::of_call(call(key), Some(noting(&outcomes, key))), executor);
    }
    let completed = serial_executor.handle_all_and_batch((1..=calls).map(end), Waker::noop(), executor);
    assert_eq!(completed, Completed::Batched);
    executor.needed.lock().clear();
    (serial_executor, outcomes)
}

fn noting(outcomes: &Arc<Mutex<Vec<u64>>>, key: u64) -> ReplySender {
    let outcomes = Arc::clone(outcomes);
    ReplySender::new(move |_| outcomes.lock().push(key))
}

#[test]
fn what_callers_leave_is_taken_in_together() {
    let executor = Panicking::default();
    let (serial_executor, outcomes) = call_batching(&executor, 3);
    assert_eq!(*outcomes.lock(), [1, 2, 3]);
    executor.wakes_at.set(None);
    for key in [5, 6] {
        serial_executor.send(tell(key).into(), &executor);
    }
    assert_eq!((serial_executor.queued(), executor.needed.lock().len()), (2, 0));
    assert_eq!(
        executor.wakes_at.get(),
        Some(Time::ZERO + BATCH_WAIT_MAX),
        "somebody comes, even if nobody comes again"
    );
    assert!(serial_executor.apply_batched(true, &executor), "there may be more");
    assert_eq!(*executor.needed.lock(), [actor(5), actor(6)]);
    serial_executor.send(tell(7).into(), &executor);
    assert_eq!(serial_executor.queued(), 1);
    assert!(
        !serial_executor.apply_batched(true, &executor),
        "all three have sent something"
    );
    serial_executor.send(tell(8).into(), &executor);
    assert_eq!(*executor.needed.lock(), [5, 6, 7, 8].map(actor));
}

#[test]
fn callers_that_do_not_send_again_are_not_waited_for() {
    let executor = Panicking::default();
    let (serial_executor, _) = call_batching(&executor, 3);
    serial_executor.send(tell(5).into(), &executor);
    assert!(serial_executor.apply_batched(true, &executor));
    assert!(!serial_executor.apply_batched(true, &executor), "nothing came since");
    serial_executor.send(tell(6).into(), &executor);
    assert_eq!(*executor.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn a_caller_that_sends_nothing_leaves_nothing_behind() {
    let executor = Panicking::default();
    let (serial_executor, _) = call_batching(&executor, 2);
    serial_executor.send(tell(5).into(), &executor);
    assert!(!serial_executor.apply_batched(false, &executor));
    serial_executor.send(tell(6).into(), &executor);
    assert_eq!(*executor.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn many_that_were_left_wait_for_nobody() {
    let executor = Panicking::default();
    let (serial_executor, _) = call_batching(&executor, 2);
    for key in 0..BATCHED_CALLS_MAX as u64 {
        serial_executor.send(tell(100 + key).into(), &executor);
    }
    assert_eq!(
        (serial_executor.queued(), executor.needed.lock().len()),
        (0, BATCHED_CALLS_MAX)
    );
}

#[test]
fn other_events_take_in_what_was_left_before_them() {
    let executor = Panicking::default();
    let (serial_executor, _) = call_batching(&executor, 2);
    serial_executor.send(tell(5).into(), &executor);
    serial_executor.handle(tell(6).into(), &executor);
    assert_eq!(*executor.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn one_caller_alone_does_not_leave_its_next_call() {
    let executor = Panicking::default();
    let serial_executor = serial_executor(&executor);
    let outcomes = Arc::default();
    serial_executor.send(Input::of_call(call(1), Some(noting(&outcomes, 1))), &executor);
    let completed = serial_executor.handle_all_and_batch([end(1)], Waker::noop(), &executor);
    assert_eq!(completed, Completed::One);
    serial_executor.send(tell(2).into(), &executor);
    assert_eq!((serial_executor.queued(), &*outcomes.lock()), (0, &vec![1]));
}

/// How often it was woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_deferred_wake_on_a_busy_thread_comes_late() {
    let executor = Panicking::default();
    let (serial_executor, outcomes) = (serial_executor(&executor), Arc::default());
    for key in [1, 2] {
        serial_executor.send(Input::of_call(call(key), Some(noting(&outcomes, key))), &executor);
    }
    let began = Time(1_000_000_000);
    executor.now.set(began);
    let woken = Arc::new(Woken::default());
    let task = Waker::from(Arc::clone(&woken));
    let completed = serial_executor.handle_all_and_batch([end(1), end(2)], &task, &executor);
    assert_eq!(completed, Completed::Batched);
    // Without tokio there is nothing that it could give way to.
    assert_eq!(woken.0.swap(0, Ordering::SeqCst), 1);
    serial_executor.send(tell(5).into(), &executor);
    // The timer may have been set for others before.
    executor.now.set(began + BATCH_WAIT_MAX / 2);
    serial_executor.wake(&executor);
    assert_eq!(
        (serial_executor.queued(), woken.0.load(Ordering::SeqCst)),
        (0, 0),
        "it is not late"
    );
    assert_eq!(executor.wakes_at.get(), Some(began + BATCH_WAIT_MAX));
    executor.now.set(began + BATCH_WAIT_MAX);
    serial_executor.wake(&executor);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(!serial_executor.apply_batched(true, &executor));
    serial_executor.wake(&executor);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "it waits no longer");
}

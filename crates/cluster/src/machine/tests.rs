//! A machine whose hands fail, and one that is left alone for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Wake;

use elastin_protocol::{Limits, Member, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, ActorType, CallId, NodeId, SlotEpoch, Unknown};

use super::*;

const ME: NodeId = NodeId(1);

/// Panics at the first of these, and notes the others.
#[derive(Default)]
struct Clumsy {
    now: Cell<Time>,
    to_fail: Cell<bool>,
    needed: Mutex<Vec<ActorId>>,
    stops: Cell<u32>,
    wakes_at: Cell<Option<Time>>,
}

impl Hands for Clumsy {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn carry_out(&self, command: Command, _: &mut Desk) {
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
fn machine(hands: &Clumsy) -> Machine {
    let machine = Machine::new(Node::new(NodeConfig {
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
    machine.handle(Event::MayActUntil(Time(u64::MAX)).into(), hands);
    machine.handle(Event::View(view).into(), hands);
    machine
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
fn a_panic_stops_the_machine_and_every_caller_hears_of_it() {
    let hands = Clumsy::default();
    let machine = machine(&hands);
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let caller = |key| {
        let outcomes = Arc::clone(&outcomes);
        ReplySlot::new(move |outcome| outcomes.lock().push((key, outcome)))
    };
    machine.handle(Input::of_call(call(1), Some(caller(1))), &hands);
    hands.to_fail.set(true);
    machine.handle_all([tell(2), tell(3)], &hands);
    assert_eq!(hands.stops.get(), 1);
    assert_eq!(*hands.needed.lock(), [actor(1)], "nothing is carried out any more");
    // A thread that still seemed to drain would leave this to itself for ever.
    machine.handle_now(Input::of_call(call(4), Some(caller(4))), &hands);
    assert_eq!(
        *outcomes.lock(),
        [
            (1, Err(CallError::Unknown(Unknown::NodeLost))),
            (4, Err(CallError::NotDelivered(NotDelivered::Unreachable))),
        ]
    );
    assert_eq!((machine.queued(), hands.stops.get()), (0, 1));
}

#[test]
fn a_panic_while_events_are_made_wedges_no_thread() {
    let hands = Clumsy::default();
    let machine = machine(&hands);
    let events = std::iter::once_with(|| panic!("on purpose"));
    let ended = catch_unwind(AssertUnwindSafe(|| machine.handle_all(events, &hands)));
    assert!(ended.is_err());
    machine.handle_now(tell(3).into(), &hands);
    assert_eq!(*hands.needed.lock(), [actor(3)]);
}

/// A machine with calls that have just ended, so many of them. Whoever has called hears of it here.
fn gathering(hands: &Clumsy, calls: u64) -> (Machine, Arc<Mutex<Vec<u64>>>) {
    let (machine, heard) = (machine(hands), Arc::default());
    for key in 1..=calls {
        machine.send(Input::of_call(call(key), Some(noting(&heard, key))), hands);
    }
    let told = machine.handle_all_and_gather((1..=calls).map(end), Waker::noop(), hands);
    assert_eq!(told, Told::Several);
    hands.needed.lock().clear();
    (machine, heard)
}

fn noting(heard: &Arc<Mutex<Vec<u64>>>, key: u64) -> ReplySlot {
    let heard = Arc::clone(heard);
    ReplySlot::new(move |_| heard.lock().push(key))
}

#[test]
fn what_callers_leave_is_taken_in_together() {
    let hands = Clumsy::default();
    let (machine, heard) = gathering(&hands, 3);
    assert_eq!(*heard.lock(), [1, 2, 3]);
    hands.wakes_at.set(None);
    for key in [5, 6] {
        machine.send(tell(key).into(), &hands);
    }
    assert_eq!((machine.queued(), hands.needed.lock().len()), (2, 0));
    assert_eq!(
        hands.wakes_at.get(),
        Some(Time::ZERO + GATHERED_WAITS_MAX),
        "somebody comes, even if nobody comes again"
    );
    assert!(machine.take_in_gathered(true, &hands), "there may be more");
    assert_eq!(*hands.needed.lock(), [actor(5), actor(6)]);
    machine.send(tell(7).into(), &hands);
    assert_eq!(machine.queued(), 1);
    assert!(!machine.take_in_gathered(true, &hands), "all three have sent something");
    machine.send(tell(8).into(), &hands);
    assert_eq!(*hands.needed.lock(), [5, 6, 7, 8].map(actor));
}

#[test]
fn callers_that_do_not_send_again_are_not_waited_for() {
    let hands = Clumsy::default();
    let (machine, _) = gathering(&hands, 3);
    machine.send(tell(5).into(), &hands);
    assert!(machine.take_in_gathered(true, &hands));
    assert!(!machine.take_in_gathered(true, &hands), "nothing came since");
    machine.send(tell(6).into(), &hands);
    assert_eq!(*hands.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn who_does_not_come_again_leaves_nothing_behind() {
    let hands = Clumsy::default();
    let (machine, _) = gathering(&hands, 2);
    machine.send(tell(5).into(), &hands);
    assert!(!machine.take_in_gathered(false, &hands));
    machine.send(tell(6).into(), &hands);
    assert_eq!(*hands.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn many_that_were_left_wait_for_nobody() {
    let hands = Clumsy::default();
    let (machine, _) = gathering(&hands, 2);
    for key in 0..GATHERED_MAX as u64 {
        machine.send(tell(100 + key).into(), &hands);
    }
    assert_eq!((machine.queued(), hands.needed.lock().len()), (0, GATHERED_MAX));
}

#[test]
fn other_events_take_in_what_was_left_before_them() {
    let hands = Clumsy::default();
    let (machine, _) = gathering(&hands, 2);
    machine.send(tell(5).into(), &hands);
    machine.handle(tell(6).into(), &hands);
    assert_eq!(*hands.needed.lock(), [actor(5), actor(6)]);
}

#[test]
fn one_caller_alone_does_not_leave_its_next_call() {
    let hands = Clumsy::default();
    let machine = machine(&hands);
    let heard = Arc::default();
    machine.send(Input::of_call(call(1), Some(noting(&heard, 1))), &hands);
    let told = machine.handle_all_and_gather([end(1)], Waker::noop(), &hands);
    assert_eq!(told, Told::One);
    machine.send(tell(2).into(), &hands);
    assert_eq!((machine.queued(), &*heard.lock()), (0, &vec![1]));
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
fn who_gave_way_to_a_thread_that_has_much_to_do_is_woken_after_a_while() {
    let hands = Clumsy::default();
    let (machine, heard) = (machine(&hands), Arc::default());
    for key in [1, 2] {
        machine.send(Input::of_call(call(key), Some(noting(&heard, key))), &hands);
    }
    let began = Time(1_000_000_000);
    hands.now.set(began);
    let woken = Arc::new(Woken::default());
    let task = Waker::from(Arc::clone(&woken));
    let told = machine.handle_all_and_gather([end(1), end(2)], &task, &hands);
    assert_eq!(told, Told::Several);
    // Without tokio there is nothing that it could give way to.
    assert_eq!(woken.0.swap(0, Ordering::SeqCst), 1);
    machine.send(tell(5).into(), &hands);
    // The alarm may have been set for others before.
    hands.now.set(began + GATHERED_WAITS_MAX / 2);
    machine.wake(&hands);
    assert_eq!(
        (machine.queued(), woken.0.load(Ordering::SeqCst)),
        (0, 0),
        "it is not late"
    );
    assert_eq!(hands.wakes_at.get(), Some(began + GATHERED_WAITS_MAX));
    hands.now.set(began + GATHERED_WAITS_MAX);
    machine.wake(&hands);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(!machine.take_in_gathered(true, &hands));
    machine.wake(&hands);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "it waits no longer");
}

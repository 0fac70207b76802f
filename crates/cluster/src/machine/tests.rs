//! A machine whose hands fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastin_protocol::{Limits, Member, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, ActorType, NodeId, SlotEpoch, Unknown};

use super::*;

const ME: NodeId = NodeId(1);

/// Panics at the first of these, and notes the others.
#[derive(Default)]
struct Clumsy {
    to_fail: Cell<bool>,
    needed: Mutex<Vec<ActorId>>,
    stops: Cell<u32>,
}

impl Hands for Clumsy {
    fn now(&self) -> Time {
        Time::ZERO
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

    fn wake_at(&self, _: Option<Time>) {}
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

fn message(key: u64, one_way: bool) -> Event {
    use elastin_types::{CallId, Caller, Header, Message, Method};
    let call = CallId {
        origin: ME,
        sequence: key,
    };
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

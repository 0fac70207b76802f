//! A machine whose hands fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastin_protocol::{Limits, Member, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, ActorType, NodeId, SlotEpoch};

use super::*;

const ME: NodeId = NodeId(1);

/// Panics at the first of these, and notes the others.
#[derive(Default)]
struct Clumsy {
    to_fail: Cell<bool>,
    needed: Mutex<Vec<ActorId>>,
    failures: Mutex<Vec<String>>,
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

    fn failed(&self, doing: &str) {
        self.failures.lock().push(doing.to_owned());
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
    use elastin_types::{CallId, Caller, ChainId, Header, Message, Method, TenantId};
    let call = CallId {
        origin: ME,
        sequence: key,
    };
    let header = Header {
        call,
        chain: ChainId(call),
        caller: Caller::Client(ME),
        tenant: TenantId::default(),
        deadline: None,
        one_way: true,
        expected_cost: None,
        trace: None,
        source_time_ms: 0,
        context: None,
        request: None,
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
fn a_panic_ends_one_command_and_nothing_else() {
    let hands = Clumsy::default();
    let machine = machine(&hands);
    hands.to_fail.set(true);
    // The second one comes in the same batch, and must not be lost with the first.
    machine.handle_all([tell(1), tell(2)], &hands);
    assert_eq!(*hands.failures.lock(), ["carrying out a command"]);
    assert_eq!(*hands.needed.lock(), [actor(2)]);
    // A thread that still seemed to drain would leave this to itself for ever.
    machine.handle_now(tell(3).into(), &hands);
    assert_eq!(*hands.needed.lock(), [actor(2), actor(3)]);
    assert_eq!(machine.queued(), 0);
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

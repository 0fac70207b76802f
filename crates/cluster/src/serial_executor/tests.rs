//! An executor whose commands panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastin_protocol::{Limits, Member, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, ActorType, CallId, NodeId, SlotEpoch, Unknown};

use super::*;

const ME: NodeId = NodeId(1);

/// Records the actors that need a place, or panics if asked to.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) now: Cell<Time>,
    to_fail: Cell<bool>,
    pub(crate) needed: Mutex<Vec<ActorId>>,
    stops: Cell<u32>,
    pub(crate) wakes_at: Cell<Option<Time>>,
}

impl CommandExecutor for Recorder {
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

pub(crate) fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

/// A server that is alone and owns the directory.
pub(crate) fn serial_executor(executor: &Recorder) -> SerialExecutor {
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

/// A tell to this actor, which has no host yet.
pub(crate) fn tell(key: u64) -> Event {
    message(key, true)
}

/// A call to this actor, which has no host yet.
pub(crate) fn call(key: u64) -> Event {
    message(key, false)
}

/// The end of a call to this actor.
pub(crate) fn end(key: u64) -> Event {
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
    let executor = Recorder::default();
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
    assert_eq!(*executor.needed.lock(), [actor(1)], "no more commands are executed");
    // A thread that was still marked as draining would enqueue this for ever.
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
fn a_panic_of_the_event_iterator_blocks_no_thread() {
    let executor = Recorder::default();
    let serial_executor = serial_executor(&executor);
    let events = std::iter::once_with(|| panic!("on purpose"));
    let ended = catch_unwind(AssertUnwindSafe(|| serial_executor.handle_all(events, &executor)));
    assert!(ended.is_err());
    serial_executor.handle_now(tell(3).into(), &executor);
    assert_eq!(*executor.needed.lock(), [actor(3)]);
}

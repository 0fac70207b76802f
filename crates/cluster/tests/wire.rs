//! The wire format is unchanged: every kind of frame is encoded and compared with a file in git. Nodes of two builds share one
//! cluster while it is upgraded, so a change here needs a new wire version (`WIRE_VERSIONS`).
//!
//! `ELASTIN_WIRE=write cargo test -p elastin-cluster --test wire` writes that file and the seeds of the fuzz target again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_cluster::WIRE_VERSIONS;
use elastin_golden::{self as golden, samples};
use elastin_protocol::{
    Body, DirectoryBody, Entry, Frame, MoveBody, MoveError, MoveStep, MovedRequest, RequestId, Slot,
};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, ChainId, Header, Key, Message, Method, NodeId,
    NotDelivered, Overloaded, Rejected, Request, SlotEpoch, TenantId, Time, TraceContext, Unknown,
};

fn actor() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 7)
}

fn epoch(counter: u32) -> ActivationEpoch {
    let slot = SlotEpoch(3);
    ActivationEpoch { slot, counter }
}

fn call() -> CallId {
    CallId {
        origin: NodeId(5),
        sequence: 300,
    }
}

fn message() -> Message {
    Message {
        target: actor(),
        header: Header {
            call: call(),
            chain: ChainId(call()),
            caller: Caller::Actor(ActorId::new(ActorType::of("File"), "a.txt")),
            tenant: TenantId(0),
            deadline: Some(Time(1_000_000)),
            one_way: false,
            expected_cost: None,
            trace: None,
            source_time_ms: 0,
            context: None,
            request: Some(Request {
                number: 3,
                settled_below: 2,
            }),
        },
        method: Method::of("open"),
        body: Bytes::from_static(b"args"),
    }
}

fn moving(step: MoveStep) -> Body {
    Body::Move(MoveBody {
        actor: actor(),
        epoch: epoch(1),
        attempt: 2,
        step,
    })
}

/// A message with all optional fields.
fn full_message() -> Message {
    let mut message = message();
    message.header.one_way = true;
    message.header.tenant = TenantId(7);
    message.header.expected_cost = Some(Duration::from_micros(1500));
    message.header.trace = Some(TraceContext {
        trace_id: [1; 16],
        span_id: [2; 8],
        flags: 1,
    });
    message.header.source_time_ms = 1_700_000_000_000;
    message.header.context = Some([("user".into(), "ann".into())].into());
    message
}

fn entry() -> Entry {
    Entry {
        actor: actor(),
        node: NodeId(9),
        epoch: epoch(1),
        attempts_void: 1,
    }
}

fn slots() -> Vec<(Slot, SlotEpoch)> {
    vec![(Slot::new(4095), SlotEpoch(3))]
}

fn to_directory(message: Message) -> Body {
    Body::Message {
        message: Arc::new(message),
        epoch: None,
    }
}

fn rejected_body(error: CallError) -> Body {
    Body::Rejected {
        actor: actor(),
        call: call(),
        error: Box::new(error),
    }
}

samples! {
    fn bodies() -> Body {
        "message": Body::Message { epoch: Some(_), .. } => Body::Message { message: Arc::new(message()), epoch: Some(epoch(1)) },
        "message to the directory": Body::Message { epoch: None, .. } => to_directory(message()),
        "passed": Body::Passed { .. } => Body::Passed { message: Arc::new(message()), epoch: epoch(1) },
        "passed on": Body::PassedOn { .. } => Body::PassedOn { actor: actor(), call: call(), to: NodeId(9) },
        "landed": Body::Landed { .. } => Body::Landed { actor: actor(), call: call(), epoch: epoch(1) },
        "kept": Body::Kept { .. } => Body::Kept { actor: actor(), call: call(), caller: Caller::Client(NodeId(5)) },
        "returned": Body::Returned { .. } => Body::Returned { message: Arc::new(message()), place: Some((NodeId(9), epoch(2))) },
        "turned away": Body::Rejected { .. } => rejected_body(CallError::NotDelivered(NotDelivered::NoPlace)),
        "reply": Body::Reply { outcome: Ok(_), .. } => Body::Reply { call: call(), outcome: Ok(Bytes::from_static(b"reply")) },
        "no reply": Body::Reply { outcome: Err(_), .. } => Body::Reply { call: call(), outcome: Err(CallError::Panicked) },
        "ping": Body::Ping => Body::Ping,
        "view": Body::ViewIs { .. } => Body::ViewIs { revision: 77 },
        "move": Body::Move(_) => moving(MoveStep::Offer),
        "directory": Body::Directory(_) => Body::Directory(DirectoryBody::Recover { slots: slots() }),
        "parting": Body::Leaving => Body::Leaving,
        "parted": Body::Parted => Body::Parted,
    }
}

samples! {
    fn steps() -> MoveStep {
        "offer": MoveStep::Offer => MoveStep::Offer,
        "accept": MoveStep::Accept => MoveStep::Accept,
        "refuse": MoveStep::Refuse(_) => MoveStep::Refuse(MoveError::TargetUnfit),
        "stage": MoveStep::Stage { .. } => MoveStep::Stage { chunk: Bytes::from_static(b"part"), last: true },
        "cancel": MoveStep::Cancel => MoveStep::Cancel,
        "release": MoveStep::Release { .. } => MoveStep::Release {
            to_epoch: epoch(2),
            queue: vec![Arc::new(message())],
            last: true,
        },
        "requests": MoveStep::Requests(_) => MoveStep::Requests(vec![MovedRequest {
            id: RequestId {
                origin: NodeId(5),
                number: 3,
            },
            outcome: Some(Ok(Bytes::from_static(b"reply"))),
        }]),
        "settled": MoveStep::Settled => MoveStep::Settled,
        "arrived": MoveStep::Arrived => MoveStep::Arrived,
    }
}

samples! {
    fn directory_bodies() -> DirectoryBody {
        "grant": DirectoryBody::Grant { .. } => DirectoryBody::Grant { actor: actor(), epoch: epoch(1) },
        "ended": DirectoryBody::Ended { .. } => DirectoryBody::Ended { actor: actor(), epoch: epoch(1) },
        "end noted": DirectoryBody::EndNoted { .. } => DirectoryBody::EndNoted { actor: actor(), epoch: epoch(1) },
        "commit": DirectoryBody::Commit { .. } => DirectoryBody::Commit {
            actor: actor(),
            from: NodeId(9),
            epoch: epoch(1),
            attempt: 2,
        },
        "abort": DirectoryBody::Abort { .. } => DirectoryBody::Abort { actor: actor(), epoch: epoch(1), attempt: 2 },
        "decided": DirectoryBody::Decided { .. } => DirectoryBody::Decided {
            actor: actor(),
            epoch: epoch(1),
            attempt: 2,
            node: NodeId(9),
            now: epoch(2),
            by: SlotEpoch(3),
        },
        "hand over": DirectoryBody::HandOver { .. } => DirectoryBody::HandOver {
            slots: slots(),
            entries: vec![entry()],
            last: Some(true),
        },
        "recover": DirectoryBody::Recover { .. } => DirectoryBody::Recover { slots: slots() },
        "recovered": DirectoryBody::Recovered { .. } => DirectoryBody::Recovered { entries: vec![entry()], done: slots() },
    }
}

samples! {
    fn call_errors() -> CallError {
        "not delivered": CallError::NotDelivered(_) => CallError::NotDelivered(NotDelivered::Unreachable),
        "unknown": CallError::Unknown(_) => CallError::Unknown(Unknown::NodeLost),
        "overloaded": CallError::Overloaded(_) => CallError::Overloaded(Overloaded::Actor),
        "panicked": CallError::Panicked => CallError::Panicked,
        "call cycle": CallError::CallCycle => CallError::CallCycle,
        "cancelled": CallError::Cancelled => CallError::Cancelled,
        "deadline exceeded": CallError::DeadlineExceeded => CallError::DeadlineExceeded,
        "rejected": CallError::Rejected(_) => CallError::Rejected(Rejected::UnknownType("Folder".into())),
    }
}

samples! {
    fn not_delivered() -> NotDelivered {
        "unreachable": NotDelivered::Unreachable => NotDelivered::Unreachable,
        "not here": NotDelivered::NotHere => NotDelivered::NotHere,
        "no place": NotDelivered::NoPlace => NotDelivered::NoPlace,
        "shutting down": NotDelivered::ShuttingDown => NotDelivered::ShuttingDown,
        "state unavailable": NotDelivered::StateUnavailable => NotDelivered::StateUnavailable,
    }
}

samples! {
    fn unknown() -> Unknown {
        "node lost": Unknown::NodeLost => Unknown::NodeLost,
        "not saved": Unknown::NotSaved => Unknown::NotSaved,
    }
}

samples! {
    fn overloaded() -> Overloaded {
        "actor": Overloaded::Actor => Overloaded::Actor,
        "tenant": Overloaded::Tenant => Overloaded::Tenant,
        "node": Overloaded::Node => Overloaded::Node,
    }
}

samples! {
    fn rejected() -> Rejected {
        "unknown type": Rejected::UnknownType(_) => Rejected::UnknownType("Folder".into()),
        "unknown method": Rejected::UnknownMethod { .. } => Rejected::UnknownMethod { kind: "Folder".into(), method: "open".into() },
        "undecodable": Rejected::Undecodable { .. } => Rejected::Undecodable {
            what: "the reply".into(),
            method: "open".into(),
            why: "it is too short".into(),
        },
        "too large": Rejected::TooLarge { .. } => Rejected::TooLarge { bytes: 300, max: 200 },
        "key too long": Rejected::KeyTooLong { .. } => Rejected::KeyTooLong { bytes: 300 },
        "unbound": Rejected::Unbound(_) => Rejected::Unbound("Folder".into()),
    }
}

samples! {
    fn move_errors() -> MoveError {
        "not here": MoveError::NotHere => MoveError::NotHere,
        "already there": MoveError::AlreadyThere => MoveError::AlreadyThere,
        "already moving": MoveError::AlreadyMoving => MoveError::AlreadyMoving,
        "too many": MoveError::TooMany(_) => MoveError::TooMany(NodeId(9)),
        "target unfit": MoveError::TargetUnfit => MoveError::TargetUnfit,
        "target lost": MoveError::TargetLost => MoveError::TargetLost,
        "not frozen": MoveError::NotFrozen => MoveError::NotFrozen,
        "ended": MoveError::Ended => MoveError::Ended,
        "deadline exceeded": MoveError::DeadlineExceeded => MoveError::DeadlineExceeded,
        "target too new": MoveError::TargetTooNew => MoveError::TargetTooNew,
    }
}

samples! {
    fn callers() -> Caller {
        "client": Caller::Client(_) => Caller::Client(NodeId(5)),
        "actor": Caller::Actor(_) => Caller::Actor(actor()),
    }
}

samples! {
    fn keys() -> Key {
        "number": Key::U64(_) => Key::U64(300),
        "uuid": Key::Uuid(_) => Key::Uuid([7; 16]),
        "text": Key::Str(_) => Key::Str("a.txt".into()),
    }
}

/// Bodies of every kind with their names.
fn parts() -> Vec<(String, Body)> {
    let mut parts: Vec<(String, Body)> = Vec::new();
    let mut add = |kind: &str, name: &str, body: Body| parts.push((format!("{kind} {name}"), body));
    for (name, error) in call_errors() {
        add("error", name, rejected_body(error));
    }
    for (name, why) in not_delivered() {
        add("not delivered", name, rejected_body(CallError::NotDelivered(why)));
    }
    for (name, why) in unknown() {
        add("unknown", name, rejected_body(CallError::Unknown(why)));
    }
    for (name, party) in overloaded() {
        add("overloaded", name, rejected_body(CallError::Overloaded(party)));
    }
    for (name, why) in rejected() {
        add("rejected", name, rejected_body(CallError::Rejected(why)));
    }
    for (name, why) in move_errors() {
        add("refused", name, moving(MoveStep::Refuse(why)));
    }
    for (name, caller) in callers() {
        let (actor, call) = (actor(), call());
        add("caller", name, Body::Kept { actor, call, caller });
    }
    for (name, key) in keys() {
        let (actor, call, to) = (ActorId { key, ..actor() }, call(), NodeId(9));
        add("key", name, Body::PassedOn { actor, call, to });
    }
    add("full", "message", to_directory(full_message()));
    parts
}

fn encoded(body: Option<Body>) -> Vec<u8> {
    golden::encoded(&Frame {
        number: 12,
        acknowledged: 11,
        sent_at: Time(13),
        body,
    })
}

#[test]
fn the_encoding_of_every_kind_of_frame_is_unchanged() {
    let named = |(name, body): (&str, Body)| (name.to_owned(), body);
    let bodies = bodies().into_iter().map(named);
    let steps = steps().into_iter().map(|(name, step)| (name.to_owned(), moving(step)));
    let directory = directory_bodies().into_iter();
    let directory = directory.map(|(name, body)| (name.to_owned(), Body::Directory(body)));
    let bodies = bodies.chain(steps).chain(directory).chain(parts());
    let mut frames = vec![("acknowledgement".to_owned(), encoded(None))];
    frames.extend(bodies.map(|(name, body)| (name, encoded(Some(body)))));
    if golden::rewrites() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds-frame");
        for (name, bytes) in &frames {
            // A length, the class of the protocol, the frame.
            let length = (bytes.len() as u32 + 1).to_le_bytes();
            let wire = [&length[..], &[1], bytes].concat();
            std::fs::write(seeds.join(name.replace(' ', "-")), wire).unwrap();
        }
    }
    let lines: Vec<String> = frames.iter().map(|(name, bytes)| golden::line(name, bytes)).collect();
    let (_, newest) = WIRE_VERSIONS;
    golden::check(&format!("tests/wire/version-{newest}.txt"), &lines);
}

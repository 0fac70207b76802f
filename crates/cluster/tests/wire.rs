//! The wire format is as it was: every kind of frame, encoded, against a file in git. Nodes of two builds work in one cluster
//! while it is upgraded, so a change here needs a new wire version (`WIRE_VERSIONS`) that the old one can be told from.
//!
//! `ELASTIN_WIRE=write cargo test -p elastin-cluster --test wire` writes the file anew, and the seeds of the fuzz target.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use elastin_cluster::WIRE_VERSIONS;
use elastin_protocol::{
    Body, DirectoryBody, Entry, Frame, MoveBody, MoveError, MoveStep, MovedRequest, RequestId, Slot,
};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, ChainId, Header, Message, Method, NodeId,
    NotDelivered, Request, SlotEpoch, TenantId, Time,
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

/// One of every kind.
fn bodies() -> Vec<(&'static str, Body)> {
    let (message, actor, call) = (Arc::new(message()), actor(), call());
    let entry = Entry {
        actor: actor.clone(),
        node: NodeId(9),
        epoch: epoch(1),
        attempts_void: 1,
    };
    let slots = vec![(Slot::new(4095), SlotEpoch(3))];
    let named = |step| moving(step);
    let directory = Body::Directory;
    vec![
        (
            "message",
            Body::Message {
                message: message.clone(),
                epoch: Some(epoch(1)),
            },
        ),
        (
            "message to the directory",
            Body::Message {
                message: message.clone(),
                epoch: None,
            },
        ),
        (
            "passed",
            Body::Passed {
                message: message.clone(),
                epoch: epoch(1),
            },
        ),
        (
            "passed on",
            Body::PassedOn {
                actor: actor.clone(),
                call,
                to: NodeId(9),
            },
        ),
        (
            "landed",
            Body::Landed {
                actor: actor.clone(),
                call,
                epoch: epoch(1),
            },
        ),
        (
            "kept",
            Body::Kept {
                actor: actor.clone(),
                call,
                caller: Caller::Client(NodeId(5)),
            },
        ),
        (
            "returned",
            Body::Returned {
                message: message.clone(),
                place: Some((NodeId(9), epoch(2))),
            },
        ),
        (
            "turned away",
            Body::TurnedAway {
                actor: actor.clone(),
                call,
                error: Box::new(CallError::NotDelivered(NotDelivered::NoPlace)),
            },
        ),
        (
            "reply",
            Body::Reply {
                call,
                outcome: Ok(Bytes::from_static(b"reply")),
            },
        ),
        ("ping", Body::Ping),
        ("view", Body::ViewIs { revision: 77 }),
        ("offer", named(MoveStep::Offer)),
        ("accept", named(MoveStep::Accept)),
        ("refuse", named(MoveStep::Refuse(MoveError::TargetUnfit))),
        (
            "stage",
            named(MoveStep::Stage {
                chunk: Bytes::from_static(b"part"),
                last: true,
            }),
        ),
        ("cancel", named(MoveStep::Cancel)),
        (
            "release",
            named(MoveStep::Release {
                to_epoch: epoch(2),
                queue: vec![message],
                last: true,
            }),
        ),
        (
            "requests",
            named(MoveStep::Requests(vec![MovedRequest {
                id: RequestId {
                    origin: NodeId(5),
                    number: 3,
                },
                outcome: Some(Ok(Bytes::from_static(b"reply"))),
            }])),
        ),
        ("settled", named(MoveStep::Settled)),
        ("arrived", named(MoveStep::Arrived)),
        (
            "grant",
            directory(DirectoryBody::Grant {
                actor: actor.clone(),
                epoch: epoch(1),
            }),
        ),
        (
            "ended",
            directory(DirectoryBody::Ended {
                actor: actor.clone(),
                epoch: epoch(1),
            }),
        ),
        (
            "end noted",
            directory(DirectoryBody::EndNoted {
                actor: actor.clone(),
                epoch: epoch(1),
            }),
        ),
        (
            "commit",
            directory(DirectoryBody::Commit {
                actor: actor.clone(),
                from: NodeId(9),
                epoch: epoch(1),
                attempt: 2,
            }),
        ),
        (
            "abort",
            directory(DirectoryBody::Abort {
                actor: actor.clone(),
                epoch: epoch(1),
                attempt: 2,
            }),
        ),
        (
            "decided",
            directory(DirectoryBody::Decided {
                actor,
                epoch: epoch(1),
                attempt: 2,
                node: NodeId(9),
                now: epoch(2),
                by: SlotEpoch(3),
            }),
        ),
        (
            "hand over",
            directory(DirectoryBody::HandOver {
                slots: slots.clone(),
                entries: vec![entry.clone()],
                last: Some(true),
            }),
        ),
        ("recover", directory(DirectoryBody::Recover { slots: slots.clone() })),
        (
            "recovered",
            directory(DirectoryBody::Recovered {
                entries: vec![entry],
                done: slots,
            }),
        ),
        ("parting", Body::Parting),
        ("parted", Body::Parted),
    ]
}

fn encoded(body: Option<Body>) -> Vec<u8> {
    let frame = Frame {
        number: 12,
        acknowledged: 11,
        sent_at: Time(13),
        body,
    };
    let bytes = postcard::to_stdvec(&frame).expect("a frame can be encoded");
    assert_eq!(postcard::from_bytes::<Frame>(&bytes).as_ref(), Ok(&frame));
    bytes
}

fn file() -> PathBuf {
    let (_, newest) = WIRE_VERSIONS;
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wire/version-{newest}.txt"))
}

#[test]
fn every_kind_of_frame_is_encoded_as_it_was() {
    let mut frames = vec![("acknowledgement", encoded(None))];
    frames.extend(bodies().into_iter().map(|(name, body)| (name, encoded(Some(body)))));
    let line = |(name, bytes): &(&str, Vec<u8>)| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name}: {hex}\n")
    };
    let text: String = frames.iter().map(line).collect();
    if std::env::var_os("ELASTIN_WIRE").is_some_and(|what| what == "write") {
        std::fs::write(file(), &text).unwrap();
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds-frame");
        for (name, bytes) in &frames {
            // A length, the class of the protocol, the frame.
            let length = (bytes.len() as u32 + 1).to_le_bytes();
            let wire = [&length[..], &[1], bytes].concat();
            std::fs::write(seeds.join(name.replace(' ', "-")), wire).unwrap();
        }
    }
    let kept = std::fs::read_to_string(file()).expect("the wire format is kept in git");
    for (now, before) in text.lines().zip(kept.lines()) {
        assert_eq!(now, before, "the wire format has changed: see the top of this file");
    }
    assert_eq!(text.lines().count(), kept.lines().count());
}

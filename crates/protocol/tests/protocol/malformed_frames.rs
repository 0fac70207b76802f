//! Malformed and unauthorized frames: a node survives them and keeps serving other peers.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastin_protocol::{
    Body, Command, DirectoryBody, Entry, Event, Frame, Limits, Member, MoveBody, MoveStep, Node, NodeConfig, Slot, View,
};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, SlotEpoch, Time};

use crate::common::{self, Driven};

const ME: NodeId = NodeId(1);
const SERVER: NodeId = NodeId(2);
const CLIENT: NodeId = NodeId(3);
const OTHER_CLIENT: NodeId = NodeId(4);
const EPOCH: ActivationEpoch = ActivationEpoch {
    slot: SlotEpoch(1),
    counter: 1,
};

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn call(origin: NodeId, sequence: u64) -> CallId {
    CallId { origin, sequence }
}

fn view() -> View {
    let clients = [CLIENT, OTHER_CLIENT].map(|node| (node, Member::CLIENT));
    common::view(10, common::servers(&[ME, SERVER]).chain(clients), ME, EPOCH.slot)
}

/// A server that owns the directory.
fn server() -> Driven {
    Driven::new(ME, Limits::default(), view())
}

/// Whether a call from this client to a new actor is served: the directory requests a placement.
fn serves(driven: &mut Driven, client: NodeId, key: u64) -> bool {
    let message = Arc::new(common::call(call(client, key), actor(key)));
    let epoch = None;
    let commands = driven.receive(client, Body::Message { message, epoch });
    let finds_place =
        |command: &Command| matches!(command, Command::NeedPlacement { actor: placed, .. } if *placed == actor(key));
    commands.iter().any(finds_place)
}

/// Frames that only servers and slot owners may send.
fn server_only_frames() -> Vec<Body> {
    let slots: Vec<(Slot, SlotEpoch)> = Slot::all().map(|slot| (slot, SlotEpoch(u32::MAX))).collect();
    let entry = Entry {
        actor: actor(1),
        node: CLIENT,
        epoch: EPOCH,
        attempts_void: 0,
    };
    let (actor, epoch) = (actor(1), EPOCH);
    let theirs = call(OTHER_CLIENT, 1);
    let message = Arc::new(common::call(theirs, actor.clone()));
    let directory = [
        DirectoryBody::Grant {
            actor: actor.clone(),
            epoch,
        },
        DirectoryBody::HandOver {
            slots: slots.clone(),
            entries: vec![entry.clone()],
            last: Some(true),
        },
        DirectoryBody::Recover { slots: slots.clone() },
        DirectoryBody::Recovered {
            entries: vec![entry],
            done: slots,
        },
        DirectoryBody::Ended {
            actor: actor.clone(),
            epoch,
        },
    ];
    let offer = MoveBody {
        actor: actor.clone(),
        epoch,
        attempt: 0,
        step: MoveStep::Offer,
    };
    let others = [
        Body::Passed {
            message: message.clone(),
            epoch,
        },
        // A call of another client, which would receive its outcome.
        Body::Message {
            message: message.clone(),
            epoch: Some(epoch),
        },
        Body::PassedOn {
            actor: actor.clone(),
            call: theirs,
            to: SERVER,
        },
        Body::Landed {
            actor: actor.clone(),
            call: theirs,
            epoch,
        },
        Body::Returned { message, place: None },
        Body::Rejected {
            actor,
            call: theirs,
            error: Box::new(CallError::NotDelivered(NotDelivered::NoPlace)),
        },
        Body::Reply {
            call: call(ME, 1),
            outcome: Ok(bytes::Bytes::new()),
        },
        Body::Move(offer),
        Body::Leaving,
        Body::Parted,
    ];
    directory.into_iter().map(Body::Directory).chain(others).collect()
}

#[test]
fn server_only_frames_of_a_client_are_refused_and_reported_once() {
    let mut driven = server();
    let frames = server_only_frames();
    let count = frames.len() as u64;
    for (number, body) in frames.into_iter().enumerate() {
        let commands = driven.receive(CLIENT, body.clone());
        let refused = Command::Refused { from: CLIENT };
        match number {
            0 => assert_eq!(commands, [refused]),
            _ => assert_eq!(commands, [], "{body:?}"),
        }
    }
    assert_eq!(driven.node.measures().refused, count);
    assert!(serves(&mut driven, OTHER_CLIENT, 1));
    assert!(
        serves(&mut driven, CLIENT, 2),
        "frames that a client may send are handled"
    );
}

#[test]
fn a_reply_from_a_client_is_refused() {
    let mut driven = server();
    let message = Arc::new(common::call(call(ME, 1), actor(1)));
    driven.handle(Event::Send { message });
    let reply = |from: &mut Driven, peer| {
        let outcome = Ok(bytes::Bytes::new());
        let commands = from.receive(
            peer,
            Body::Reply {
                call: call(ME, 1),
                outcome,
            },
        );
        commands
            .iter()
            .any(|command| matches!(command, Command::Complete { .. }))
    };
    assert!(!reply(&mut driven, CLIENT));
    assert!(reply(&mut driven, SERVER));
}

#[test]
fn the_highest_attempt_number_can_be_aborted() {
    let mut driven = server();
    assert!(serves(&mut driven, CLIENT, 1));
    let (actor, node) = (actor(1), Some(SERVER));
    driven.handle(Event::Placed {
        actor: actor.clone(),
        node,
    });
    let abort = DirectoryBody::Abort {
        actor,
        epoch: EPOCH,
        attempt: u32::MAX,
    };
    let commands = driven.receive(SERVER, Body::Directory(abort));
    let is_answer = |command: &Command| {
        matches!(command, Command::Transmit { to: SERVER, frame } if matches!(
            &frame.body,
            Some(Body::Directory(DirectoryBody::Decided { node: SERVER, .. }))
        ))
    };
    assert!(commands.iter().any(is_answer), "{commands:?}");
}

#[test]
fn frames_before_the_first_view_are_deferred() {
    let mut driven = Driven {
        node: Node::new(NodeConfig {
            me: ME,
            hosts: true,
            limits: Limits::default(),
        }),
        frames: BTreeMap::new(),
    };
    driven.handle(Event::MayActUntil(Time(u64::MAX)));
    // A peer normally sends its view first; this one does not.
    assert!(!serves(&mut driven, CLIENT, 1));
    let commands = driven.handle(Event::View(view()));
    let finds_place = |command: &Command| matches!(command, Command::NeedPlacement { .. });
    assert!(commands.iter().any(finds_place), "{commands:?}");
}

#[test]
fn out_of_range_frame_numbers_are_ignored() {
    let mut driven = server();
    for (number, acknowledged) in [(u64::MAX, u64::MAX), (0, u64::MAX), (7, 7), (u64::MAX, 0)] {
        for body in [None, Some(Body::Ping)] {
            let frame = Frame {
                number,
                acknowledged,
                sent_at: Time::ZERO,
                body,
            };
            let commands = driven.handle(Event::Frame { from: CLIENT, frame });
            let only_acknowledges =
                |command: &Command| matches!(command, Command::Transmit { to: CLIENT, frame } if frame.body.is_none());
            assert!(commands.iter().all(only_acknowledges), "{commands:?}");
        }
    }
    assert!(serves(&mut driven, OTHER_CLIENT, 1));
    assert!(serves(&mut driven, CLIENT, 2), "frames in order are handled");
}

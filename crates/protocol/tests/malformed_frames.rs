//! Peers that send what makes no sense, or what they may not send: a node survives it, and serves the others.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Driven;
use elastin_protocol::{
    Body, Command, DirectoryBody, Entry, Event, Frame, Limits, Member, MoveBody, MoveStep, Node, NodeConfig, Slot, View,
};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, SlotEpoch, Time};

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

/// A call of this client to an actor that is nowhere: served, if the directory looks for a place.
fn serves(driven: &mut Driven, client: NodeId, key: u64) -> bool {
    let message = Arc::new(common::call(call(client, key), actor(key)));
    let epoch = None;
    let commands = driven.hears(client, Body::Message { message, epoch });
    let finds_place =
        |command: &Command| matches!(command, Command::NeedPlacement { actor: whose, .. } if *whose == actor(key));
    commands.iter().any(finds_place)
}

/// What only servers, and owners of slots, send.
fn words_of_servers() -> Vec<Body> {
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
        // A call of another, whose origin would hear what becomes of it.
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
        Body::TurnedAway {
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
fn what_only_servers_say_is_ignored_of_a_client_and_told_once() {
    let mut driven = server();
    let words = words_of_servers();
    let count = words.len() as u64;
    for (number, body) in words.into_iter().enumerate() {
        let commands = driven.hears(CLIENT, body.clone());
        let refused = Command::Refused { from: CLIENT };
        match number {
            0 => assert_eq!(commands, [refused]),
            _ => assert_eq!(commands, [], "{body:?}"),
        }
    }
    assert_eq!(driven.node.measures().refused, count);
    assert!(serves(&mut driven, OTHER_CLIENT, 1));
    assert!(serves(&mut driven, CLIENT, 2), "what it may send is heard");
}

#[test]
fn a_reply_to_a_call_is_not_taken_from_a_client() {
    let mut driven = server();
    let message = Arc::new(common::call(call(ME, 1), actor(1)));
    driven.happens(Event::Send { message });
    let reply = |from: &mut Driven, peer| {
        let outcome = Ok(bytes::Bytes::new());
        let commands = from.hears(
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
fn an_attempt_that_can_not_be_counted_is_called_off_all_the_same() {
    let mut driven = server();
    assert!(serves(&mut driven, CLIENT, 1));
    let (actor, node) = (actor(1), Some(SERVER));
    driven.happens(Event::Placed {
        actor: actor.clone(),
        node,
    });
    let abort = DirectoryBody::Abort {
        actor,
        epoch: EPOCH,
        attempt: u32::MAX,
    };
    let commands = driven.hears(SERVER, Body::Directory(abort));
    let is_answer = |command: &Command| {
        matches!(command, Command::Transmit { to: SERVER, frame } if matches!(
            &frame.body,
            Some(Body::Directory(DirectoryBody::Decided { node: SERVER, .. }))
        ))
    };
    assert!(commands.iter().any(is_answer), "{commands:?}");
}

#[test]
fn what_comes_before_the_first_view_waits_for_it() {
    let mut driven = Driven {
        node: Node::new(NodeConfig {
            me: ME,
            hosts: true,
            limits: Limits::default(),
        }),
        frames: BTreeMap::new(),
    };
    driven.happens(Event::MayActUntil(Time(u64::MAX)));
    // Whoever speaks says first which view it has; this one does not.
    assert!(!serves(&mut driven, CLIENT, 1));
    let commands = driven.happens(Event::View(view()));
    let finds_place = |command: &Command| matches!(command, Command::NeedPlacement { .. });
    assert!(commands.iter().any(finds_place), "{commands:?}");
}

#[test]
fn numbers_from_nowhere_disturb_nobody() {
    let mut driven = server();
    for (number, acknowledged) in [(u64::MAX, u64::MAX), (0, u64::MAX), (7, 7), (u64::MAX, 0)] {
        for body in [None, Some(Body::Ping)] {
            let frame = Frame {
                number,
                acknowledged,
                sent_at: Time::ZERO,
                body,
            };
            let commands = driven.happens(Event::Frame { from: CLIENT, frame });
            let only_acknowledges =
                |command: &Command| matches!(command, Command::Transmit { to: CLIENT, frame } if frame.body.is_none());
            assert!(commands.iter().all(only_acknowledges), "{commands:?}");
        }
    }
    assert!(serves(&mut driven, OTHER_CLIENT, 1));
    assert!(serves(&mut driven, CLIENT, 2), "what it says in order is heard");
}

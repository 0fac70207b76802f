//! A client that is no longer a member: each of its calls ends, and nobody is told that a call has not run which may have.

mod common;

use std::sync::Arc;

use common::{Driven, servers};
use elastin_protocol::{Body, Command, Event, Limits, Member};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, Outcome, SlotEpoch, Time, Unknown,
};

const OWNER: NodeId = NodeId(1);
const HOST: NodeId = NodeId(2);
const CLIENT: NodeId = NodeId(3);
const EPOCH: ActivationEpoch = ActivationEpoch {
    slot: SlotEpoch(1),
    counter: 1,
};
const NOT_DELIVERED: Outcome = Err(CallError::NotDelivered(NotDelivered::Unreachable));
const IN_DOUBT: Outcome = Err(CallError::Unknown(Unknown::NodeLost));

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn id(sequence: u64) -> CallId {
    let origin = CLIENT;
    CallId { origin, sequence }
}

fn client() -> Driven {
    let members = servers(&[OWNER, HOST]).chain([(CLIENT, Member::CLIENT)]);
    Driven::new(CLIENT, Limits::default(), common::view(10, members, OWNER, EPOCH.slot))
}

/// The client calls an actor, as its so-and-so-manieth call.
fn calls(client: &mut Driven, sequence: u64, actor: ActorId) -> Vec<Command> {
    let message = Arc::new(common::call(id(sequence), actor));
    client.happens(Event::Send { message })
}

/// The outcomes of calls, in the order in which they are told.
fn outcomes(commands: Vec<Command>) -> Vec<(u64, Outcome)> {
    let completed = |command| match command {
        Command::Complete { call, outcome } => Some((call.sequence, outcome)),
        _ => None,
    };
    commands.into_iter().filter_map(completed).collect()
}

#[test]
fn calls_that_may_have_left_are_in_doubt_and_others_are_not_delivered() {
    let mut client = client();
    // On its way through the directory.
    calls(&mut client, 1, actor(1));
    // Waits behind it.
    calls(&mut client, 2, actor(1));
    // Has a place in its receiver's queue.
    calls(&mut client, 3, actor(2));
    let (landed, epoch) = (actor(2), EPOCH);
    client.hears(
        HOST,
        Body::Landed {
            actor: landed,
            call: id(3),
            epoch,
        },
    );
    // The lease may have run out: what is sent now does not leave.
    client.happens(Event::MayActUntil(Time::ZERO));
    calls(&mut client, 4, actor(2));
    calls(&mut client, 5, actor(3));
    assert_eq!(
        outcomes(client.happens(Event::Evicted)),
        [
            (1, IN_DOUBT),
            (2, NOT_DELIVERED),
            (3, IN_DOUBT),
            (4, NOT_DELIVERED),
            (5, NOT_DELIVERED)
        ]
    );
}

#[test]
fn a_call_that_came_back_is_not_delivered() {
    let mut client = client();
    calls(&mut client, 1, actor(1));
    client.happens(Event::MayActUntil(Time::ZERO));
    let message = Arc::new(common::call(id(1), actor(1)));
    client.hears(OWNER, Body::Returned { message, place: None });
    assert_eq!(outcomes(client.happens(Event::Evicted)), [(1, NOT_DELIVERED)]);
}

#[test]
fn whoever_is_evicted_takes_part_in_nothing_any_more() {
    let mut client = client();
    calls(&mut client, 1, actor(1));
    client.happens(Event::Evicted);
    assert_eq!(outcomes(calls(&mut client, 2, actor(1))), [(2, NOT_DELIVERED)]);
    let outcome = Ok(bytes::Bytes::from_static(b"late"));
    let late = client.hears(HOST, Body::Reply { call: id(1), outcome });
    let view = client.happens(Event::View(common::view(11, servers(&[OWNER]), OWNER, EPOCH.slot)));
    let linked = client.happens(Event::LinkUp { peer: OWNER });
    let acts = client.happens(Event::MayActUntil(Time(u64::MAX)));
    assert_eq!([late, view, linked, acts], [const { Vec::<Command>::new() }; 4]);
}

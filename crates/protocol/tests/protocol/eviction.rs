//! An evicted client: each of its calls ends, and a call that may have run is never reported as not delivered.

use std::sync::Arc;

use elastin_protocol::{Body, Command, Event, Limits, Member};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, Outcome, SlotEpoch, Time, Unknown,
};

use crate::common::{self, Driven, servers};

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

/// The client calls an actor, with this sequence number.
fn calls(client: &mut Driven, sequence: u64, actor: ActorId) -> Vec<Command> {
    let message = Arc::new(common::call(id(sequence), actor));
    client.handle(Event::Send { message })
}

/// The outcomes of calls, in completion order.
fn outcomes(commands: Vec<Command>) -> Vec<(u64, Outcome)> {
    let completed = |command| match command {
        Command::Complete { call, outcome } => Some((call.sequence, outcome)),
        _ => None,
    };
    commands.into_iter().filter_map(completed).collect()
}

#[test]
fn sent_calls_are_in_doubt_and_unsent_ones_not_delivered() {
    let mut client = client();
    // In flight through the directory.
    calls(&mut client, 1, actor(1));
    // Queued behind it.
    calls(&mut client, 2, actor(1));
    // Enqueued in its target's mailbox.
    calls(&mut client, 3, actor(2));
    let (landed, epoch) = (actor(2), EPOCH);
    client.receive(
        HOST,
        Body::Landed {
            actor: landed,
            call: id(3),
            epoch,
        },
    );
    // The lease may have expired: later calls are not sent.
    client.handle(Event::MayActUntil(Time::ZERO));
    calls(&mut client, 4, actor(2));
    calls(&mut client, 5, actor(3));
    assert_eq!(
        outcomes(client.handle(Event::Evicted)),
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
fn a_returned_call_is_not_delivered() {
    let mut client = client();
    calls(&mut client, 1, actor(1));
    client.handle(Event::MayActUntil(Time::ZERO));
    let message = Arc::new(common::call(id(1), actor(1)));
    client.receive(OWNER, Body::Returned { message, place: None });
    assert_eq!(outcomes(client.handle(Event::Evicted)), [(1, NOT_DELIVERED)]);
}

#[test]
fn an_evicted_node_ignores_all_events() {
    let mut client = client();
    calls(&mut client, 1, actor(1));
    client.handle(Event::Evicted);
    assert_eq!(outcomes(calls(&mut client, 2, actor(1))), [(2, NOT_DELIVERED)]);
    let outcome = Ok(bytes::Bytes::from_static(b"late"));
    let late = client.receive(HOST, Body::Reply { call: id(1), outcome });
    let view = client.handle(Event::View(common::view(11, servers(&[OWNER]), OWNER, EPOCH.slot)));
    let linked = client.handle(Event::LinkUp { peer: OWNER });
    let acts = client.handle(Event::MayActUntil(Time(u64::MAX)));
    assert_eq!([late, view, linked, acts], [const { Vec::<Command>::new() }; 4]);
}

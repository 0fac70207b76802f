//! Calls that are made again, at the node that hosts their receiver.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Driven, servers};
use elastin_protocol::{Body, Command, Event, Limits, View};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallId, Message, NodeId, Request, SlotEpoch};

const HOST: NodeId = NodeId(1);
const ORIGIN: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

fn view(revision: u64, members: &[NodeId]) -> View {
    common::view(revision, servers(members), HOST, SlotEpoch(1))
}

fn account() -> ActorId {
    ActorId::new(ActorType::of("Account"), 9)
}

/// A call of the origin's first request.
fn call(sequence: u64) -> Arc<Message> {
    let origin = ORIGIN;
    let mut message = common::call(CallId { origin, sequence }, account());
    message.header.request = Some(Request {
        number: 1,
        settled_below: 1,
    });
    Arc::new(message)
}

fn delivered(commands: &[Command]) -> usize {
    let is_delivery = |command: &&Command| matches!(command, Command::Deliver { .. });
    commands.iter().filter(is_delivery).count()
}

fn replied(commands: &[Command]) -> Vec<u64> {
    let reply = |command: &Command| match command {
        Command::Transmit { frame, .. } => match &frame.body {
            Some(Body::Reply { call, outcome: Ok(_) }) => Some(call.sequence),
            _ => None,
        },
        _ => None,
    };
    commands.iter().filter_map(reply).collect()
}

/// A host that has run the first call of a request.
fn host() -> (Driven, ActivationEpoch) {
    let mut host = Driven::new(HOST, Limits::default(), view(10, &[HOST, ORIGIN, OTHER]));
    let (message, epoch) = (call(1), None);
    host.hears(ORIGIN, Body::Message { message, epoch });
    let placed = host.happens(Event::Placed {
        actor: account(),
        node: Some(HOST),
    });
    let epoch = placed.iter().find_map(|command| match command {
        Command::Activate { epoch, .. } => Some(*epoch),
        _ => None,
    });
    let epoch = epoch.expect("it is activated");
    let actor = account();
    let result = Ok(());
    let activated = host.happens(Event::Activated { actor, epoch, result });
    assert_eq!(delivered(&activated), 1);
    (host, epoch)
}

fn runs_first(host: &mut Driven) -> Vec<u64> {
    let call = call(1).header.call;
    let outcome = Ok(Bytes::from_static(b"paid"));
    replied(&host.happens(Event::Replied { call, outcome }))
}

#[test]
fn a_call_that_is_made_again_does_not_run_again() {
    let (mut host, epoch) = host();
    let again = |host: &mut Driven, sequence| {
        let (message, epoch) = (call(sequence), Some(epoch));
        host.hears(ORIGIN, Body::Message { message, epoch })
    };
    let waits = again(&mut host, 2);
    assert_eq!((delivered(&waits), replied(&waits)), (0, vec![]));
    assert_eq!(runs_first(&mut host), [2], "the latest call gets the outcome");
    let later = again(&mut host, 3);
    assert_eq!((delivered(&later), replied(&later)), (0, vec![3]));
}

#[test]
fn a_call_that_outlives_its_caller_does_not_run() {
    let (mut host, epoch) = host();
    runs_first(&mut host);
    host.happens(Event::View(view(11, &[HOST, OTHER])));
    assert_eq!(host.node.table_sizes().requests, 0, "nobody can make the call again");
    // Another node had passed it on, and was cut off since.
    let late = host.hears(
        OTHER,
        Body::Passed {
            message: call(2),
            epoch,
        },
    );
    assert_eq!(delivered(&late), 0);
}

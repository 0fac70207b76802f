//! Dedup of retried calls at the host of their target.

use std::sync::Arc;

use bytes::Bytes;
use elastin_protocol::{Body, Command, Event, Limits, View};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallId, Message, NodeId, Request, SlotEpoch};

use crate::common::{self, Driven, servers};

const HOST: NodeId = NodeId(1);
const ORIGIN: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

fn view(revision: u64, members: &[NodeId]) -> View {
    common::view(revision, servers(members), HOST, SlotEpoch(1))
}

fn account() -> ActorId {
    ActorId::new(ActorType::of("Account"), 9)
}

/// An attempt of the origin's first request.
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
    host.receive(ORIGIN, Body::Message { message, epoch });
    let placed = host.handle(Event::Placed {
        actor: account(),
        node: Some(HOST),
    });
    let epoch = placed.iter().find_map(|command| match command {
        Command::Activate { epoch, .. } => Some(*epoch),
        _ => None,
    });
    let epoch = epoch.expect("the actor is activated");
    let actor = account();
    let result = Ok(());
    let activated = host.handle(Event::Activated { actor, epoch, result });
    assert_eq!(delivered(&activated), 1);
    (host, epoch)
}

fn complete_first(host: &mut Driven) -> Vec<u64> {
    let call = call(1).header.call;
    let outcome = Ok(Bytes::from_static(b"paid"));
    replied(&host.handle(Event::Replied { call, outcome }))
}

#[test]
fn a_retried_call_does_not_run_twice() {
    let (mut host, epoch) = host();
    let retry = |host: &mut Driven, sequence| {
        let (message, epoch) = (call(sequence), Some(epoch));
        host.receive(ORIGIN, Body::Message { message, epoch })
    };
    let waits = retry(&mut host, 2);
    assert_eq!((delivered(&waits), replied(&waits)), (0, vec![]));
    assert_eq!(complete_first(&mut host), [2], "the latest call gets the outcome");
    let later = retry(&mut host, 3);
    assert_eq!((delivered(&later), replied(&later)), (0, vec![3]));
}

#[test]
fn a_call_of_an_evicted_caller_does_not_run() {
    let (mut host, epoch) = host();
    complete_first(&mut host);
    host.handle(Event::View(view(11, &[HOST, OTHER])));
    assert_eq!(host.node.table_sizes().requests, 0, "an evicted origin can't retry");
    // Another node forwarded it and was then disconnected.
    let late = host.receive(
        OTHER,
        Body::Passed {
            message: call(2),
            epoch,
        },
    );
    assert_eq!(delivered(&late), 0);
}

#[test]
fn a_deferred_call_that_was_given_up_is_not_sent() {
    let mut origin = Driven::new(ORIGIN, Limits::default(), view(10, &[HOST, ORIGIN, OTHER]));
    origin.node.begin_request().expect("the limit is not reached");
    origin.handle(Event::Send { message: call(1) });
    let waits = origin.handle(Event::Send { message: call(2) });
    assert!(
        waits.is_empty(),
        "the retry is deferred until the first call has landed: {waits:?}"
    );
    for sequence in [1, 2] {
        let call = call(sequence).header.call;
        origin.handle(Event::GiveUp { call });
    }
    origin.handle(Event::Settle { request: 1 });
    let (actor, call, epoch) = (account(), call(1).header.call, ActivationEpoch::default());
    let commands = origin.receive(HOST, Body::Landed { actor, call, epoch });
    let is_message = |command: &Command| match command {
        Command::Transmit { frame, .. } => matches!(frame.body, Some(Body::Message { .. })),
        _ => false,
    };
    assert!(!commands.iter().any(is_message), "{commands:?}");
}

#[test]
fn a_request_is_not_settled_while_a_call_of_it_is_in_flight() {
    let mut origin = Driven::new(ORIGIN, Limits::default(), view(10, &[HOST, ORIGIN, OTHER]));
    let other = || ActorId::new(ActorType::of("Account"), 10);
    // Sends a call of the next request and returns its request header.
    let next = |origin: &mut Driven, sequence: u64| {
        let mut message = common::call(
            CallId {
                origin: ORIGIN,
                sequence,
            },
            other(),
        );
        let number = origin.node.begin_request().expect("the limit is not reached");
        message.header.request = Some(Request {
            number,
            settled_below: 0,
        });
        let call = message.header.call;
        let message = Arc::new(message);
        let commands = origin.handle(Event::Send { message });
        origin.handle(Event::GiveUp { call });
        origin.handle(Event::Settle { request: number });
        let (actor, epoch) = (other(), ActivationEpoch::default());
        origin.receive(HOST, Body::Landed { actor, call, epoch });
        commands.iter().find_map(|command| match command {
            Command::Transmit { frame, .. } => match &frame.body {
                Some(Body::Message { message, .. }) => message.header.request,
                _ => None,
            },
            _ => None,
        })
    };
    origin.node.begin_request().expect("the limit is not reached");
    origin.handle(Event::Send { message: call(1) });
    let first = call(1).header.call;
    origin.handle(Event::GiveUp { call: first });
    origin.handle(Event::Settle { request: 1 });
    let sent = next(&mut origin, 11).expect("the call is sent");
    assert_eq!(
        (sent.number, sent.settled_below),
        (2, 1),
        "a call of the first request is in flight"
    );
    let (actor, epoch) = (account(), ActivationEpoch::default());
    origin.receive(
        HOST,
        Body::Landed {
            actor,
            call: first,
            epoch,
        },
    );
    let sent = next(&mut origin, 12).expect("the call is sent");
    assert_eq!(
        (sent.number, sent.settled_below),
        (3, 3),
        "the calls of both requests have landed"
    );
}

#[test]
fn settled_requests_free_capacity_behind_an_open_one() {
    let limits = Limits {
        requests_open: 3,
        ..Limits::default()
    };
    let mut origin = Driven::new(ORIGIN, limits, view(10, &[HOST, ORIGIN, OTHER]));
    origin.node.begin_request().expect("the limit is not reached");
    for _ in 0..9 {
        let request = origin.node.begin_request().expect("two are open at most");
        origin.handle(Event::Settle { request });
    }
    for _ in 0..2 {
        origin.node.begin_request().expect("there is room");
    }
    assert_eq!(origin.node.begin_request(), None, "three are open");
}

//! Calls that are made again, at the node that hosts their receiver.

use std::collections::BTreeMap;

use bytes::Bytes;
use elastin_protocol::{Body, Command, Event, Frame, Limits, Member, Node, NodeConfig, SlotTable, View};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallId, Caller, ChainId, Header, Message, Method, NodeId, Request, SlotEpoch,
    TenantId, Time,
};

const HOST: NodeId = NodeId(1);
const ORIGIN: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

struct Host {
    node: Node,
    frames: BTreeMap<NodeId, u64>,
}

impl Host {
    fn happens(&mut self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        self.node.handle(Time::ZERO, event, &mut commands);
        commands
    }

    fn hears(&mut self, from: NodeId, body: Body) -> Vec<Command> {
        let number = self.frames.entry(from).or_default();
        *number += 1;
        let frame = Frame {
            number: *number,
            acknowledged: 0,
            body: Some(body),
        };
        self.happens(Event::Frame { from, frame })
    }

    fn view(&mut self, revision: u64, members: &[NodeId]) {
        let members: BTreeMap<NodeId, Member> = members.iter().map(|node| (*node, Member::SERVER)).collect();
        self.happens(Event::View(View {
            revision,
            members: members.into(),
            slots: SlotTable::owned_by(HOST, SlotEpoch(1)),
        }));
    }
}

fn account() -> ActorId {
    ActorId::new(ActorType::of("Account"), 9)
}

/// A call of the origin's first request.
fn call(sequence: u64) -> Message {
    let origin = ORIGIN;
    let call = CallId { origin, sequence };
    Message {
        target: account(),
        header: Header {
            call,
            chain: ChainId(call),
            caller: Caller::Client(ORIGIN),
            tenant: TenantId::default(),
            deadline: None,
            one_way: false,
            expected_cost: None,
            trace: None,
            source_time_ms: 0,
            context: None,
            request: Some(Request {
                number: 1,
                settled_below: 1,
            }),
        },
        method: Method::of("pay"),
        body: Bytes::new(),
    }
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
fn host() -> (Host, ActivationEpoch) {
    let config = NodeConfig {
        me: HOST,
        hosts: true,
        limits: Limits::default(),
    };
    let mut host = Host {
        node: Node::new(config),
        frames: BTreeMap::new(),
    };
    host.happens(Event::MayActUntil(Time(u64::MAX)));
    host.view(10, &[HOST, ORIGIN, OTHER]);
    for peer in [ORIGIN, OTHER] {
        host.happens(Event::LinkUp { peer });
    }
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

fn runs_first(host: &mut Host) -> Vec<u64> {
    let call = call(1).header.call;
    let outcome = Ok(Bytes::from_static(b"paid"));
    replied(&host.happens(Event::Replied { call, outcome }))
}

#[test]
fn a_call_that_is_made_again_does_not_run_again() {
    let (mut host, epoch) = host();
    let again = |host: &mut Host, sequence| {
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
    host.view(11, &[HOST, OTHER]);
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

//! A peer that calls and calls and takes no reply: what waits for it is bounded, and what is refused has not run.

use std::collections::BTreeMap;

use bytes::Bytes;
use elastin_protocol::{Body, Command, DirectoryBody, Event, Frame, Limits, Member, Node, NodeConfig, SlotTable, View};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, ChainId, Header, Message, Method, NodeId,
    Overloaded, SlotEpoch, TenantId, Time,
};

const OWNER: NodeId = NodeId(1);
const HOST: NodeId = NodeId(2);
const SLOW: NodeId = NodeId(3);
const QUICK: NodeId = NodeId(4);
const REPLY_BYTES: usize = 1000;
const EPOCH: ActivationEpoch = ActivationEpoch {
    slot: SlotEpoch(1),
    counter: 1,
};

fn actor() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 9)
}

/// A node that hosts the actor, and how many frames came from each peer.
struct Host {
    node: Node,
    frames: BTreeMap<NodeId, u64>,
    calls: u64,
}

impl Host {
    fn start(limits: Limits) -> Host {
        let config = NodeConfig {
            me: HOST,
            hosts: true,
            limits,
        };
        let mut host = Host {
            node: Node::new(config),
            frames: BTreeMap::new(),
            calls: 0,
        };
        host.happens(Event::MayActUntil(Time(u64::MAX)));
        let servers = [OWNER, HOST].map(|node| (node, Member::SERVER));
        let clients = [SLOW, QUICK].map(|node| (node, Member::CLIENT));
        let members: BTreeMap<NodeId, Member> = servers.into_iter().chain(clients).collect();
        host.happens(Event::View(View {
            revision: 10,
            members: members.into(),
            slots: SlotTable::owned_by(OWNER, EPOCH.slot),
        }));
        for peer in [OWNER, SLOW, QUICK] {
            host.happens(Event::LinkUp { peer });
        }
        let (actor, epoch) = (actor(), EPOCH);
        host.hears(OWNER, Body::Directory(DirectoryBody::Grant { actor, epoch }));
        host.happens(Event::Activated {
            actor: self::actor(),
            epoch,
            result: Ok(()),
        });
        host
    }

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

    /// A call of this peer runs and is answered; false if it is refused.
    fn serves(&mut self, caller: NodeId) -> bool {
        self.calls += 1;
        let call = CallId {
            origin: caller,
            sequence: self.calls,
        };
        let message = Message {
            target: actor(),
            header: Header {
                call,
                chain: ChainId(call),
                caller: Caller::Client(caller),
                tenant: TenantId::default(),
                deadline: None,
                one_way: false,
                expected_cost: None,
                trace: None,
                source_time_ms: 0,
                context: None,
                request: None,
            },
            method: Method::of("open"),
            body: Bytes::new(),
        };
        let epoch = Some(EPOCH);
        let commands = self.hears(caller, Body::Message { message, epoch });
        if commands
            .iter()
            .any(|command| matches!(command, Command::Deliver { .. }))
        {
            let outcome = Ok(Bytes::from(vec![7; REPLY_BYTES]));
            self.happens(Event::Replied { call, outcome });
            return true;
        }
        let refused = |body: &Option<Body>| {
            let overloaded = CallError::Overloaded(Overloaded::Node);
            matches!(body, Some(Body::TurnedAway { call: whose, error, .. }) if *whose == call && *error == overloaded)
        };
        let said = |command: &Command| matches!(command, Command::Transmit { to, frame } if *to == caller && refused(&frame.body));
        assert!(commands.iter().any(said), "it is refused as overloaded: {commands:?}");
        false
    }
}

fn check(limits: Limits, replies_max: usize) {
    let mut host = Host::start(limits);
    for number in 0..replies_max {
        assert!(host.serves(SLOW), "call {number} is served");
    }
    assert!(!host.serves(SLOW), "there is no room for another reply");
    assert!(host.serves(QUICK), "others do not notice");
    // It has taken all of it at last.
    let frame = Frame {
        number: host.frames[&SLOW],
        acknowledged: replies_max as u64 + 2,
        body: None,
    };
    host.happens(Event::Frame { from: SLOW, frame });
    assert!(host.serves(SLOW), "it is served again");
}

#[test]
fn the_bytes_of_replies_that_wait_for_a_peer_are_bounded() {
    let limits = Limits {
        unacknowledged_bytes_per_peer: 5 * REPLY_BYTES,
        ..Limits::default()
    };
    check(limits, 5);
}

#[test]
fn the_replies_that_wait_for_a_peer_are_bounded() {
    // One of the frames says which view they are sent in.
    let limits = Limits {
        unacknowledged_per_peer: 6,
        ..Limits::default()
    };
    check(limits, 5);
}

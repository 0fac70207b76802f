//! Back-pressure on a peer that calls without reading replies: pending replies are bounded, refused calls have not run.

use std::sync::Arc;

use bytes::Bytes;
use elastin_protocol::{Body, Command, DirectoryBody, Event, Frame, Limits, Member};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, Overloaded, SlotEpoch, Time};

use crate::common::{self, Driven, servers};

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

/// A node that hosts the actor.
struct Host {
    driven: Driven,
    calls: u64,
}

impl Host {
    fn start(limits: Limits) -> Host {
        let clients = [SLOW, QUICK].map(|node| (node, Member::CLIENT));
        let members = servers(&[OWNER, HOST]).chain(clients);
        let view = common::view(10, members, OWNER, EPOCH.slot);
        let mut driven = Driven::new(HOST, limits, view);
        let (actor, epoch) = (actor(), EPOCH);
        driven.receive(OWNER, Body::Directory(DirectoryBody::Grant { actor, epoch }));
        driven.handle(Event::Activated {
            actor: self::actor(),
            epoch,
            result: Ok(()),
        });
        Host { driven, calls: 0 }
    }

    /// Serves a call from this peer. Returns false if it is refused.
    fn serves(&mut self, caller: NodeId) -> bool {
        self.calls += 1;
        let call = CallId {
            origin: caller,
            sequence: self.calls,
        };
        let message = Arc::new(common::call(call, actor()));
        let epoch = Some(EPOCH);
        let commands = self.driven.receive(caller, Body::Message { message, epoch });
        if commands
            .iter()
            .any(|command| matches!(command, Command::Deliver { .. }))
        {
            let outcome = Ok(Bytes::from(vec![7; REPLY_BYTES]));
            self.driven.handle(Event::Replied { call, outcome });
            return true;
        }
        let refused = |body: &Option<Body>| {
            let overloaded = CallError::Overloaded(Overloaded::Node);
            matches!(body, Some(Body::Rejected { call: id, error, .. }) if *id == call && **error == overloaded)
        };
        let sent = |command: &Command| matches!(command, Command::Transmit { to, frame } if *to == caller && refused(&frame.body));
        assert!(
            commands.iter().any(sent),
            "the call is refused as overloaded: {commands:?}"
        );
        false
    }
}

fn check(limits: Limits, replies_max: usize) {
    let mut host = Host::start(limits);
    for number in 0..replies_max {
        assert!(host.serves(SLOW), "call {number} is served");
    }
    assert!(!host.serves(SLOW), "there is no room for another reply");
    let measures = host.driven.node.measures();
    assert_eq!(measures.rejections.by_link, 1);
    assert_eq!(measures.unacknowledged_bytes, replies_max * REPLY_BYTES);
    assert!(host.serves(QUICK), "other peers are not affected");
    // The peer acknowledges all frames.
    let frame = Frame {
        number: host.driven.frames[&SLOW],
        acknowledged: replies_max as u64 + 2,
        sent_at: Time::ZERO,
        body: None,
    };
    host.driven.handle(Event::Frame { from: SLOW, frame });
    assert!(host.serves(SLOW), "the peer is served again");
}

#[test]
fn pending_reply_bytes_per_peer_are_bounded() {
    let limits = Limits {
        unacknowledged_bytes_per_peer: 5 * REPLY_BYTES,
        ..Limits::default()
    };
    check(limits, 5);
}

#[test]
fn pending_replies_per_peer_are_bounded() {
    // One of the frames carries the view.
    let limits = Limits {
        unacknowledged_per_peer: 6,
        ..Limits::default()
    };
    check(limits, 5);
}

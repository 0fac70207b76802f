//! A peer that calls and calls and takes no reply: what waits for it is bounded, and what is refused has not run.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Driven, servers};
use elastin_protocol::{Body, Command, DirectoryBody, Event, Frame, Limits, Member};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallError, CallId, NodeId, Overloaded, SlotEpoch, Time};

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
        driven.hears(OWNER, Body::Directory(DirectoryBody::Grant { actor, epoch }));
        driven.happens(Event::Activated {
            actor: self::actor(),
            epoch,
            result: Ok(()),
        });
        Host { driven, calls: 0 }
    }

    /// A call of this peer runs and is answered; false if it is refused.
    fn serves(&mut self, caller: NodeId) -> bool {
        self.calls += 1;
        let call = CallId {
            origin: caller,
            sequence: self.calls,
        };
        let message = Arc::new(common::call(call, actor()));
        let epoch = Some(EPOCH);
        let commands = self.driven.hears(caller, Body::Message { message, epoch });
        if commands
            .iter()
            .any(|command| matches!(command, Command::Deliver { .. }))
        {
            let outcome = Ok(Bytes::from(vec![7; REPLY_BYTES]));
            self.driven.happens(Event::Replied { call, outcome });
            return true;
        }
        let refused = |body: &Option<Body>| {
            let overloaded = CallError::Overloaded(Overloaded::Node);
            matches!(body, Some(Body::TurnedAway { call: whose, error, .. }) if *whose == call && **error == overloaded)
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
    let measures = host.driven.node.measures();
    assert_eq!(measures.turned_away.by_link, 1);
    assert_eq!(measures.unacknowledged_bytes, replies_max * REPLY_BYTES);
    assert!(host.serves(QUICK), "others do not notice");
    // It has taken all of it at last.
    let frame = Frame {
        number: host.driven.frames[&SLOW],
        acknowledged: replies_max as u64 + 2,
        sent_at: Time::ZERO,
        body: None,
    };
    host.driven.happens(Event::Frame { from: SLOW, frame });
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

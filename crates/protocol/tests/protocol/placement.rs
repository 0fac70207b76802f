//! Placement decisions based on a stale view.

use std::sync::Arc;

use elastin_protocol::{Body, Command, DirectoryBody, Event, Limits, Member};
use elastin_types::{ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, SlotEpoch};

use crate::common::{Driven, call, view};

const OWNER: NodeId = NodeId(1);
const LEAVING: NodeId = NodeId(2);
const STAYING: NodeId = NodeId(3);
const CLIENT: NodeId = NodeId(4);
const GONE: NodeId = NodeId(5);

const DRAINING: Member = Member {
    hosts: true,
    draining: true,
};

fn folder() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 7)
}

/// The directory owner's commands when a new actor is placed at this node.
fn placed(members: &[(NodeId, Member)], at: Option<NodeId>) -> Vec<Command> {
    let members = members.iter().copied().chain([(CLIENT, Member::CLIENT)]);
    let mut owner = Driven::new(OWNER, Limits::default(), view(10, members, OWNER, SlotEpoch(1)));
    let first = CallId {
        origin: CLIENT,
        sequence: 1,
    };
    let message = Body::Message {
        message: Arc::new(call(first, folder())),
        epoch: None,
    };
    let asked = owner.receive(CLIENT, message);
    assert!(
        asked
            .iter()
            .any(|command| matches!(command, Command::NeedPlacement { .. }))
    );
    owner.handle(Event::Placed {
        actor: folder(),
        node: at,
    })
}

fn granted_to(commands: &[Command]) -> Option<NodeId> {
    commands.iter().find_map(|command| match command {
        Command::Transmit { to, frame } => match frame.body {
            Some(Body::Directory(DirectoryBody::Grant { .. })) => Some(*to),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn an_invalid_placement_falls_back_to_an_accepting_node() {
    let members = [(OWNER, DRAINING), (LEAVING, DRAINING), (STAYING, Member::SERVER)];
    for nowhere in [Some(LEAVING), Some(GONE), Some(CLIENT), None] {
        let commands = placed(&members, nowhere);
        assert_eq!(
            granted_to(&commands),
            Some(STAYING),
            "placed at {nowhere:?}: {commands:?}"
        );
    }
}

#[test]
fn a_call_fails_if_no_node_accepts_the_actor() {
    let commands = placed(&[(OWNER, DRAINING), (LEAVING, DRAINING)], Some(LEAVING));
    let rejected = commands.iter().any(|command| {
        matches!(command, Command::Transmit { to: CLIENT, frame } if matches!(
            &frame.body,
            Some(Body::Rejected { error, .. }) if **error == CallError::NotDelivered(NotDelivered::NoPlace)
        ))
    });
    assert!(rejected, "{commands:?}");
}

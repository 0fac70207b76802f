//! Whoever places actors may know less than the directory of who has come and who has gone.

mod common;

use std::sync::Arc;

use common::{Driven, call, view};
use elastin_protocol::{Body, Command, DirectoryBody, Event, Limits, Member};
use elastin_types::{ActorId, ActorType, CallError, CallId, NodeId, NotDelivered, SlotEpoch};

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

/// What the owner of the directory does with a message to a new actor that is to be placed there.
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
    let asked = owner.hears(CLIENT, message);
    assert!(
        asked
            .iter()
            .any(|command| matches!(command, Command::NeedPlacement { .. }))
    );
    owner.happens(Event::Placed {
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
fn an_actor_that_is_placed_where_it_can_not_go_goes_to_a_node_that_takes_actors() {
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
fn who_calls_an_actor_for_which_there_is_no_place_is_told() {
    let commands = placed(&[(OWNER, DRAINING), (LEAVING, DRAINING)], Some(LEAVING));
    let turned_away = commands.iter().any(|command| {
        matches!(command, Command::Transmit { to: CLIENT, frame } if matches!(
            &frame.body,
            Some(Body::TurnedAway { error, .. }) if **error == CallError::NotDelivered(NotDelivered::NoPlace)
        ))
    });
    assert!(turned_away, "{commands:?}");
}

//! The directory gives an actor to a node that waits for the decision about moving the same actor to it.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Driven, servers};
use elastin_protocol::{Body, Command, DirectoryBody, Event, Limits, MoveBody, MoveId, MoveStep, View};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallId, Message, NodeId, SlotEpoch};

const OWNER: NodeId = NodeId(1);
const TARGET: NodeId = NodeId(2);
const SOURCE: NodeId = NodeId(3);
const SLOTS: SlotEpoch = SlotEpoch(1);

/// A node that may act and knows these members.
fn driven(me: NodeId, members: &[NodeId]) -> Driven {
    Driven::new(me, Limits::default(), view(10, members))
}

fn view(revision: u64, members: &[NodeId]) -> View {
    common::view(revision, servers(members), OWNER, SLOTS)
}

fn folder() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 9)
}

fn epoch(counter: u32) -> ActivationEpoch {
    ActivationEpoch { slot: SLOTS, counter }
}

/// A message of a caller on this node.
fn message(origin: NodeId, one_way: bool) -> Arc<Message> {
    let mut message = common::call(CallId { origin, sequence: 1 }, folder());
    message.header.one_way = one_way;
    Arc::new(message)
}

fn says(commands: &[Command], wanted: impl Fn(&Body) -> bool) -> bool {
    commands.iter().any(|command| match command {
        Command::Transmit { frame, .. } => frame.body.as_ref().is_some_and(&wanted),
        _ => false,
    })
}

#[test]
fn a_grant_that_was_denied_is_not_taken_for_the_move() {
    let actor = folder();
    let mut target = driven(TARGET, &[OWNER, TARGET, SOURCE]);
    let step = |step| {
        Body::Move(MoveBody {
            actor: actor.clone(),
            epoch: epoch(2),
            attempt: 0,
            step,
        })
    };
    target.hears(SOURCE, step(MoveStep::Offer));
    let chunk = Bytes::from_static(b"state");
    let staged = target.hears(SOURCE, step(MoveStep::Stage { chunk, last: true }));
    assert!(says(&staged, |body| matches!(
        body,
        Body::Directory(DirectoryBody::Commit { .. })
    )));

    // The question is held up on its way. Meanwhile the source dies, somebody calls, and the directory gives the actor to
    // this very node, which can't take it just now.
    target.happens(Event::View(view(11, &[OWNER, TARGET])));
    let grant = DirectoryBody::Grant {
        actor: actor.clone(),
        epoch: epoch(3),
    };
    let denied = target.hears(OWNER, Body::Directory(grant));
    let is_end =
        |body: &Body| matches!(body, Body::Directory(DirectoryBody::Ended { epoch: ended, .. }) if *ended == epoch(3));
    assert!(says(&denied, is_end));

    // The directory answers the question before it hears that: it still takes the grant for good.
    let decided = DirectoryBody::Decided {
        actor,
        epoch: epoch(2),
        attempt: 0,
        node: TARGET,
        now: epoch(3),
        by: SLOTS,
    };
    let after = target.hears(OWNER, Body::Directory(decided));
    let activates = after.iter().any(|command| matches!(command, Command::Activate { .. }));
    assert!(!activates, "what was given back must not run: {after:?}");
}

/// The source called the move off, went on, and died; the directory gave the actor to the target anew; and the target, which
/// has heard of neither, asks for the move to be decided.
#[test]
fn a_grant_that_was_lost_is_not_taken_for_the_move() {
    let actor = folder();
    let mut owner = driven(OWNER, &[OWNER, TARGET]);
    let message = message(OWNER, true);
    owner.happens(Event::Send { message });
    let placed = owner.happens(Event::Placed {
        actor: actor.clone(),
        node: Some(TARGET),
    });
    assert!(says(&placed, |body| matches!(
        body,
        Body::Directory(DirectoryBody::Grant { .. })
    )));

    let commit = DirectoryBody::Commit {
        actor,
        from: SOURCE,
        epoch: ActivationEpoch {
            slot: SlotEpoch(0),
            counter: 2,
        },
        attempt: 0,
    };
    let answer = owner.hears(TARGET, Body::Directory(commit));
    let decides_for = |place: NodeId| {
        let is_it =
            move |body: &Body| matches!(body, Body::Directory(DirectoryBody::Decided { node, .. }) if *node == place);
        says(&answer, is_it)
    };
    assert!(decides_for(SOURCE) && !decides_for(TARGET), "{answer:?}");
}

/// The move was decided, the target died at once, and the actor began anew on another node before its old host could be told.
#[test]
fn the_queue_does_not_go_to_where_the_move_did_not_lead() {
    let actor = folder();
    let mut source = driven(SOURCE, &[OWNER, TARGET, SOURCE]);
    let granted = epoch(1);
    let grant = DirectoryBody::Grant {
        actor: actor.clone(),
        epoch: granted,
    };
    source.hears(OWNER, Body::Directory(grant));
    source.happens(Event::Activated {
        actor: actor.clone(),
        epoch: granted,
        result: Ok(()),
    });
    source.happens(Event::Move {
        id: MoveId(1),
        actor: actor.clone(),
        to: TARGET,
    });
    let accept = MoveBody {
        actor: actor.clone(),
        epoch: granted,
        attempt: 0,
        step: MoveStep::Accept,
    };
    source.hears(TARGET, Body::Move(accept));
    source.happens(Event::Frozen {
        actor: actor.clone(),
        epoch: granted,
        image: Some(Bytes::from_static(b"state")),
    });
    let decided = DirectoryBody::Decided {
        actor: actor.clone(),
        epoch: granted,
        attempt: 0,
        node: OWNER,
        now: epoch(3),
        by: SLOTS,
    };
    let released = source.hears(OWNER, Body::Directory(decided));
    let is_release = |command: &Command| matches!(command, Command::Release { .. });
    assert!(released.iter().any(is_release), "{released:?}");
    let after = source.happens(Event::Released {
        actor,
        epoch: granted,
        queue: vec![message(OWNER, false)],
    });
    assert!(
        says(&after, |body| matches!(body, Body::TurnedAway { .. })),
        "{after:?}"
    );
    assert!(!says(&after, |body| matches!(body, Body::Move(_))), "{after:?}");
}

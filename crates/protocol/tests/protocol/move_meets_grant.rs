//! Races between a directory grant and a pending migration of the same actor to the same node.

use std::sync::Arc;

use bytes::Bytes;
use elastin_protocol::{Body, Command, DirectoryBody, Event, Limits, MoveBody, MoveId, MoveStep, View};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallId, Message, NodeId, SlotEpoch};

use crate::common::{self, Driven, servers};

const OWNER: NodeId = NodeId(1);
const TARGET: NodeId = NodeId(2);
const SOURCE: NodeId = NodeId(3);
const SLOTS: SlotEpoch = SlotEpoch(1);

/// A node with a valid lease and a view of these members.
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

/// A message from a caller on this node.
fn message(origin: NodeId, one_way: bool) -> Arc<Message> {
    let mut message = common::call(CallId { origin, sequence: 1 }, folder());
    message.header.one_way = one_way;
    Arc::new(message)
}

fn transmits(commands: &[Command], wanted: impl Fn(&Body) -> bool) -> bool {
    commands.iter().any(|command| match command {
        Command::Transmit { frame, .. } => frame.body.as_ref().is_some_and(&wanted),
        _ => false,
    })
}

#[test]
fn a_rejected_grant_is_not_mistaken_for_the_migration() {
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
    target.receive(SOURCE, step(MoveStep::Offer));
    let chunk = Bytes::from_static(b"state");
    let staged = target.receive(SOURCE, step(MoveStep::Stage { chunk, last: true }));
    assert!(transmits(&staged, |body| matches!(
        body,
        Body::Directory(DirectoryBody::Commit { .. })
    )));

    // The commit request is delayed. Meanwhile the source crashes, a call arrives, and the directory grants the actor
    // to this very node, which can't accept it now.
    target.handle(Event::View(view(11, &[OWNER, TARGET])));
    let grant = DirectoryBody::Grant {
        actor: actor.clone(),
        epoch: epoch(3),
    };
    let denied = target.receive(OWNER, Body::Directory(grant));
    let is_end =
        |body: &Body| matches!(body, Body::Directory(DirectoryBody::Ended { epoch: ended, .. }) if *ended == epoch(3));
    assert!(transmits(&denied, is_end));

    // The directory answers the commit before it receives the rejection: it still considers the grant valid.
    let decided = DirectoryBody::Decided {
        actor,
        epoch: epoch(2),
        attempt: 0,
        node: TARGET,
        now: epoch(3),
        by: SLOTS,
    };
    let after = target.receive(OWNER, Body::Directory(decided));
    let activates = after.iter().any(|command| matches!(command, Command::Activate { .. }));
    assert!(!activates, "a rejected activation must not run: {after:?}");
}

/// The source aborted the migration, resumed, and crashed. The directory granted the actor to the target again. The
/// target has received neither, and asks the directory to commit the migration.
#[test]
fn a_lost_grant_is_not_mistaken_for_the_migration() {
    let actor = folder();
    let mut owner = driven(OWNER, &[OWNER, TARGET]);
    let message = message(OWNER, true);
    owner.handle(Event::Send { message });
    let placed = owner.handle(Event::Placed {
        actor: actor.clone(),
        node: Some(TARGET),
    });
    assert!(transmits(&placed, |body| matches!(
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
    let answer = owner.receive(TARGET, Body::Directory(commit));
    let decides_for = |place: NodeId| {
        let is_decision =
            move |body: &Body| matches!(body, Body::Directory(DirectoryBody::Decided { node, .. }) if *node == place);
        transmits(&answer, is_decision)
    };
    assert!(decides_for(SOURCE) && !decides_for(TARGET), "{answer:?}");
}

/// The migration was committed, the target crashed, and the actor was reactivated elsewhere before the source was
/// notified.
#[test]
fn the_queue_is_not_sent_to_a_failed_migration_target() {
    let actor = folder();
    let mut source = driven(SOURCE, &[OWNER, TARGET, SOURCE]);
    let granted = epoch(1);
    let grant = DirectoryBody::Grant {
        actor: actor.clone(),
        epoch: granted,
    };
    source.receive(OWNER, Body::Directory(grant));
    source.handle(Event::Activated {
        actor: actor.clone(),
        epoch: granted,
        result: Ok(()),
    });
    source.handle(Event::Move {
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
    source.receive(TARGET, Body::Move(accept));
    source.handle(Event::Frozen {
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
    let released = source.receive(OWNER, Body::Directory(decided));
    let is_release = |command: &Command| matches!(command, Command::Release { .. });
    assert!(released.iter().any(is_release), "{released:?}");
    let after = source.handle(Event::Released {
        actor,
        epoch: granted,
        queue: vec![message(OWNER, false)],
    });
    assert!(
        transmits(&after, |body| matches!(body, Body::Rejected { .. })),
        "{after:?}"
    );
    assert!(!transmits(&after, |body| matches!(body, Body::Move(_))), "{after:?}");
}

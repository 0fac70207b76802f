//! The directory gives an actor to a node that waits for the decision about moving the same actor to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use elastin_protocol::{
    Body, Command, DirectoryBody, Event, Frame, Limits, Member, MoveBody, MoveId, MoveStep, Node, NodeConfig,
    SlotTable, View,
};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallId, Caller, ChainId, Header, Message, Method, NodeId, SlotEpoch, TenantId,
    Time,
};

const OWNER: NodeId = NodeId(1);
const TARGET: NodeId = NodeId(2);
const SOURCE: NodeId = NodeId(3);
const SLOTS: SlotEpoch = SlotEpoch(1);

/// A node, and how many frames came to it from each peer.
struct Driven {
    node: Node,
    frames: BTreeMap<NodeId, u64>,
}

impl Driven {
    /// A node that may act and knows these members.
    fn new(me: NodeId, members: &[NodeId]) -> Self {
        let config = NodeConfig {
            me,
            hosts: true,
            limits: Limits::default(),
        };
        let mut driven = Self {
            node: Node::new(config),
            frames: BTreeMap::new(),
        };
        driven.happens(Event::MayActUntil(Time(u64::MAX)));
        driven.happens(view(10, members));
        for peer in members.iter().copied().filter(|peer| *peer != me) {
            driven.happens(Event::LinkUp { peer });
        }
        driven
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
}

fn view(revision: u64, members: &[NodeId]) -> Event {
    let members: BTreeMap<NodeId, Member> = members.iter().map(|node| (*node, Member::SERVER)).collect();
    Event::View(View {
        revision,
        members: members.into(),
        slots: SlotTable::owned_by(OWNER, SLOTS),
    })
}

fn folder() -> ActorId {
    ActorId::new(ActorType::of("Folder"), 9)
}

fn epoch(counter: u32) -> ActivationEpoch {
    ActivationEpoch { slot: SLOTS, counter }
}

/// A message of a caller on this node.
fn message(origin: NodeId, one_way: bool) -> Message {
    let call = CallId { origin, sequence: 1 };
    let header = Header {
        call,
        chain: ChainId(call),
        caller: Caller::Client(origin),
        tenant: TenantId::default(),
        deadline: None,
        one_way,
        expected_cost: None,
        trace: None,
        source_time_ms: 0,
        context: None,
        request: None,
    };
    Message {
        target: folder(),
        header,
        method: Method::of("open"),
        body: Bytes::new(),
    }
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
    let mut target = Driven::new(TARGET, &[OWNER, TARGET, SOURCE]);
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
    target.happens(view(11, &[OWNER, TARGET]));
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
    let mut owner = Driven::new(OWNER, &[OWNER, TARGET]);
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
    let mut source = Driven::new(SOURCE, &[OWNER, TARGET, SOURCE]);
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

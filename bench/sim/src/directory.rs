//! The directory of a large cluster at one of its owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elastin_protocol::{Command, Event, Limits, Member, Node, NodeConfig, Slot, SlotTable, View};
use elastin_types::{ActorId, ActorType, CallId, Caller, Header, Message, Method, NodeId, SlotEpoch, Time};

/// The number of nodes in the cluster; the first owns the measured slots.
const NODES: u64 = 1000;
const OWNER: NodeId = NodeId(1);
/// The number of slots that move to another owner.
const SLOTS_MOVED: usize = 4;
/// Actors per slot, as in a cluster of a million.
const PER_SLOT: usize = 250;

fn members() -> Arc<BTreeMap<NodeId, Member>> {
    Arc::new((1..=NODES).map(|node| (NodeId(node), Member::SERVER)).collect())
}

/// An owner of the whole directory, or of a part, with this many actors in it.
fn owner_of(actors: usize) -> (Node, View) {
    let owned = (actors / PER_SLOT).max(SLOTS_MOVED);
    // The others own the rest: with one other node in the table, slots alternate.
    let others = elastin_protocol::SLOT_COUNT / owned;
    let owners: Vec<NodeId> = (0..others.max(1) as u64).map(|node| NodeId(1 + node)).collect();
    let view = View {
        revision: NODES,
        members: members(),
        slots: SlotTable::shared_by(&owners, SlotEpoch(1)),
    };
    let mut node = Node::new(NodeConfig {
        me: OWNER,
        hosts: true,
        limits: Limits::default(),
    });
    let mut out = Vec::new();
    node.handle(Time(1), Event::MayActUntil(Time(u64::MAX)), &mut out);
    node.handle(Time(1), Event::View(view.clone()), &mut out);
    let kind = ActorType::of("Directory");
    let mut placed = 0;
    for key in 0_u64.. {
        if placed == actors {
            break;
        }
        let actor = ActorId::new(kind, key);
        if view.directory_of(&actor).node != OWNER {
            continue;
        }
        placed += 1;
        place(&mut node, actor, &mut out);
    }
    (node, view)
}

/// Lets the owner place an actor, as the first message to it does. The other nodes never answer, which does not matter:
/// the messages to them are dropped with them.
fn place(node: &mut Node, actor: ActorId, out: &mut Vec<Command>) {
    out.clear();
    let origin = OWNER;
    let sequence = 1;
    let call = CallId { origin, sequence };
    let header = Header {
        one_way: true,
        ..Header::of_call(call, Caller::Client(OWNER))
    };
    let message = Message {
        target: actor.clone(),
        header,
        method: Method::of("run"),
        body: Vec::new().into(),
    };
    let message = Arc::new(message);
    node.handle(Time(2), Event::Send { message }, out);
    // Spread over the other nodes, so that none has too much in flight.
    let to = NodeId(2 + Slot::of(&actor).index() as u64 % (NODES - 1));
    node.handle(Time(2), Event::Placed { actor, node: Some(to) }, out);
}

/// The size of an actor id with a number key in the directory.
const ID_BYTES: usize = 16;

/// The bytes per actor of an owner of a million, beyond the ids.
pub fn bytes_per_actor() -> f64 {
    let (node, _) = owner_of(1_000_000);
    let sizes = node.table_sizes();
    sizes.entry_bytes as f64 / sizes.entries as f64 - ID_BYTES as f64
}

/// The seconds that an owner of this many actors takes to hand four slots over.
pub fn hand_over_slots(actors: usize) -> f64 {
    let (mut node, view) = owner_of(actors);
    let table = view.slots.handing_over(OWNER, NodeId(NODES), SLOTS_MOVED);
    let next = View {
        revision: view.revision + 1,
        members: view.members,
        slots: table,
    };
    let before = node.table_sizes().owned_slots;
    let mut out = Vec::new();
    let start = Instant::now();
    node.handle(Time(3), Event::View(next), &mut out);
    let took = start.elapsed();
    let sizes = node.table_sizes();
    assert_eq!((before - sizes.owned_slots, sizes.closed_slots), (SLOTS_MOVED, 0));
    took.max(Duration::from_nanos(1)).as_secs_f64()
}

//! A node driven by a test, at a fixed time.

use std::collections::BTreeMap;

use bytes::Bytes;
use elastin_protocol::{Body, Command, Event, Frame, Limits, Member, Node, NodeConfig, SlotTable, View};
use elastin_types::{ActorId, CallId, Caller, Header, Message, Method, NodeId, SlotEpoch, Time};

/// A node, and the number of frames it received from each peer.
pub(crate) struct Driven {
    pub(crate) node: Node,
    pub(crate) frames: BTreeMap<NodeId, u64>,
}

impl Driven {
    /// A node with a valid lease, this view and a link to each other member.
    pub(crate) fn new(me: NodeId, limits: Limits, view: View) -> Self {
        let config = NodeConfig {
            me,
            hosts: true,
            limits,
        };
        let mut driven = Self {
            node: Node::new(config),
            frames: BTreeMap::new(),
        };
        let peers: Vec<NodeId> = view.members.keys().copied().filter(|peer| *peer != me).collect();
        driven.handle(Event::MayActUntil(Time(u64::MAX)));
        driven.handle(Event::View(view));
        for peer in peers {
            driven.handle(Event::LinkUp { peer });
        }
        driven
    }

    pub(crate) fn handle(&mut self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        self.node.handle(Time::ZERO, event, &mut commands);
        commands
    }

    /// The node receives the next frame of a peer, with this body.
    pub(crate) fn receive(&mut self, from: NodeId, body: Body) -> Vec<Command> {
        let number = self.frames.entry(from).or_default();
        *number += 1;
        let frame = Frame {
            number: *number,
            acknowledged: 0,
            sent_at: Time::ZERO,
            body: Some(body),
        };
        self.handle(Event::Frame { from, frame })
    }
}

/// A view of these members with one owner of all slots.
pub(crate) fn view(
    revision: u64,
    members: impl IntoIterator<Item = (NodeId, Member)>,
    owner: NodeId,
    slots: SlotEpoch,
) -> View {
    let members: BTreeMap<NodeId, Member> = members.into_iter().collect();
    View {
        revision,
        members: members.into(),
        slots: SlotTable::owned_by(owner, slots),
    }
}

/// These nodes as servers.
pub(crate) fn servers(nodes: &[NodeId]) -> impl Iterator<Item = (NodeId, Member)> {
    nodes.iter().map(|node| (*node, Member::SERVER))
}

/// A call from a client.
pub(crate) fn call(call: CallId, target: ActorId) -> Message {
    Message {
        target,
        header: Header::of_call(call, Caller::Client(call.origin)),
        method: Method::of("open"),
        body: Bytes::new(),
    }
}

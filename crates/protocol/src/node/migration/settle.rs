//! Decides when a moved actor may run at its new host.
//!
//! It may run once every message that it sent from here has a place in its receiver's queue. Otherwise messages sent
//! from the new host could overtake them.

use elastin_types::{ActivationEpoch, ActorId, Caller, Message, NodeId};

use crate::bug::Bug;
use crate::node::Node;
use crate::{Body, MoveBody, MoveStep};

/// A completed move whose actor may not run yet, because messages that it sent from here have not settled.
#[derive(Debug)]
pub(in crate::node) struct SettlingMove {
    to: NodeId,
    epoch: ActivationEpoch,
    attempt: u32,
    /// One unsettled message found by the last search. No other search is needed until it settles.
    awaits: Option<Unsettled>,
}

/// Location of an unsettled message.
#[derive(Debug)]
enum Unsettled {
    /// In an unacknowledged frame to this peer; the last such frame.
    Frame(NodeId, u64),
    /// Held here on the route to this actor, or known to be kept or forwarded elsewhere.
    Route(ActorId),
    /// Held here for this actor, which is about to arrive or has just left.
    Held(ActorId),
}

impl SettlingMove {
    pub(in crate::node) fn new(to: NodeId, epoch: ActivationEpoch, attempt: u32) -> Self {
        let awaits = None;
        Self {
            to,
            epoch,
            attempt,
            awaits,
        }
    }

    pub(in crate::node) fn goes_to(&self, node: NodeId) -> bool {
        self.to == node
    }
}

fn is_from(sender: &ActorId, message: &Message) -> bool {
    matches!(&message.header.caller, Caller::Actor(caller) if caller == sender)
}

impl Node {
    /// Notifies the new hosts of actors whose messages have all settled that these actors may run.
    pub(in crate::node) fn report_settled(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let mut settling = std::mem::take(&mut self.settling);
        settling.retain(|actor, moved| {
            let awaited = moved
                .awaits
                .take()
                .filter(|unsettled| self.is_unsettled(actor, unsettled));
            moved.awaits = awaited.or_else(|| self.find_unsettled(actor));
            if moved.awaits.is_some() && !self.sessions.planted.is(Bug::SkipSettling) {
                return true;
            }
            let body = MoveBody {
                actor: actor.clone(),
                epoch: moved.epoch,
                attempt: moved.attempt,
                step: MoveStep::Settled,
            };
            self.sessions.send(moved.to, Body::Move(body));
            false
        });
        self.settling = settling;
    }

    fn is_unsettled(&self, sender: &ActorId, unsettled: &Unsettled) -> bool {
        match unsettled {
            Unsettled::Frame(peer, number) => self.sessions.acknowledged(*peer) < *number,
            Unsettled::Route(actor) => self.is_on_route(sender, actor),
            Unsettled::Held(actor) => self.is_held_for(sender, actor),
        }
    }

    fn is_on_route(&self, sender: &ActorId, actor: &ActorId) -> bool {
        let is_it = |caller: &Caller| matches!(caller, Caller::Actor(caller) if caller == sender);
        self.routes.get(actor).is_some_and(|route| route.waits_for(is_it))
    }

    fn is_held_for(&self, sender: &ActorId, actor: &ActorId) -> bool {
        let hosted = self.hosted.get(actor).filter(|_| self.limbo.contains(actor));
        hosted.is_some_and(|hosted| hosted.held().any(|held| is_from(sender, &held.message)))
    }

    /// Finds an unsettled message that an actor sent from here.
    fn find_unsettled(&self, sender: &ActorId) -> Option<Unsettled> {
        let is_its = |body: &Body| matches!(body, Body::Message { message, .. } if is_from(sender, message));
        for (peer, mut bodies) in self.sessions.unacknowledged() {
            if let Some(last) = bodies.rposition(is_its) {
                return Some(Unsettled::Frame(
                    peer,
                    self.sessions.acknowledged(peer) + last as u64 + 1,
                ));
            }
        }
        let held = self.limbo.iter().find(|actor| self.is_held_for(sender, actor));
        if let Some(actor) = held {
            return Some(Unsettled::Held(actor.clone()));
        }
        let route = self.busy_routes.iter().find(|actor| self.is_on_route(sender, actor));
        route.map(|actor| Unsettled::Route(actor.clone()))
    }

    /// Asks all peers with messages in flight to acknowledge at once.
    pub(in crate::node) fn request_settling_acknowledgements(&mut self) {
        let is_message = |body: &Body| matches!(body, Body::Message { .. });
        let peers: Vec<NodeId> = self
            .sessions
            .unacknowledged()
            .filter_map(|(peer, mut bodies)| bodies.any(is_message).then_some(peer))
            .collect();
        for peer in peers {
            self.sessions.send(peer, Body::Ping);
        }
    }
}

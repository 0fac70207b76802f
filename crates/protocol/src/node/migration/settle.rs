//! Decides when a moved actor may run at its new host.
//!
//! It may run once every message that it sent from here has a place in its receiver's queue. Otherwise messages sent
//! from the new host could overtake them.

use std::collections::BTreeMap;

use elastin_types::{ActorId, Message, NodeId};

use super::Attempt;
use crate::bug::Bug;
use crate::node::env::Env;
use crate::node::hosting::Hosting;
use crate::node::is_actor;
use crate::node::routing::Routing;
use crate::{Body, MoveStep};

/// Actors moved away that may not run at their target until the messages they sent from here have settled.
#[derive(Debug, Default)]
pub(in crate::node) struct Settling(BTreeMap<ActorId, SettlingMove>);

#[derive(Debug)]
struct SettlingMove {
    to: NodeId,
    attempt: Attempt,
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

impl Settling {
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an actor that has moved away.
    pub(super) fn add(&mut self, to: NodeId, attempt: Attempt) {
        let (actor, awaits) = (attempt.actor.clone(), None);
        self.0.insert(actor, SettlingMove { to, attempt, awaits });
    }

    /// Drops the actors that moved to a node that died.
    pub(super) fn lost_with(&mut self, node: NodeId) {
        self.0.retain(|_, settling| settling.to != node);
    }

    /// Notifies the new hosts of actors whose messages have all settled that these actors may run.
    pub(in crate::node) fn report(&mut self, env: &mut Env, hosting: &Hosting, routing: &Routing) {
        self.0.retain(|actor, moved| {
            let awaited = moved.awaits.take();
            let awaited = awaited.filter(|unsettled| unsettled.is_unsettled(env, hosting, routing, actor));
            moved.awaits = awaited.or_else(|| find_unsettled(env, hosting, routing, actor));
            if moved.awaits.is_some() && !env.planted.is(Bug::SkipSettling) {
                return true;
            }
            env.send(moved.to, moved.attempt.body(MoveStep::Settled));
            false
        });
    }
}

impl Unsettled {
    fn is_unsettled(&self, env: &Env, hosting: &Hosting, routing: &Routing, sender: &ActorId) -> bool {
        match self {
            Unsettled::Frame(peer, number) => env.acknowledged(*peer) < *number,
            Unsettled::Route(actor) => routing.is_unsettled(actor, sender),
            Unsettled::Held(actor) => hosting.is_unsettled(actor, sender),
        }
    }
}

/// Finds an unsettled message that an actor sent from here.
fn find_unsettled(env: &Env, hosting: &Hosting, routing: &Routing, sender: &ActorId) -> Option<Unsettled> {
    let is_from = |message: &Message| is_actor(&message.header.caller, sender);
    let is_its = |body: &Body| matches!(body, Body::Message { message, .. } if is_from(message));
    for (peer, mut bodies) in env.unacknowledged() {
        if let Some(last) = bodies.rposition(is_its) {
            return Some(Unsettled::Frame(peer, env.acknowledged(peer) + last as u64 + 1));
        }
    }
    let held = hosting.unsettled_for(sender).cloned().map(Unsettled::Held);
    held.or_else(|| routing.unsettled_for(sender).cloned().map(Unsettled::Route))
}

/// Asks all peers with messages in flight to acknowledge at once.
pub(super) fn request_acknowledgements(env: &mut Env) {
    let is_message = |body: &Body| matches!(body, Body::Message { .. });
    let peers: Vec<NodeId> = env
        .unacknowledged()
        .filter_map(|(peer, mut bodies)| bodies.any(is_message).then_some(peer))
        .collect();
    for peer in peers {
        env.send(peer, Body::Ping);
    }
}

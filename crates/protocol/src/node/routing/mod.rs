//! Paths to actors: where messages of local callers go, and how a path changes without reordering them.
//!
//! `reports` has the effects of what other nodes report about messages, `losses` the changes of paths when nodes die,
//! leave, or take over directory slots.

mod losses;
mod reports;
mod route;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Caller, Message, NodeId};

use super::calls::Calls;
use super::env::Env;
use super::is_actor;
use super::measures::{Full, NoRoom};
use super::sizes::TableSizes;
use crate::bug::Bug;
use crate::{Body, Map};

pub(super) use route::{Path, Place, Route};

use route::{Asking, Leaving};

/// The paths of local callers' messages to actors on other nodes.
#[derive(Debug, Default)]
pub(super) struct Routing {
    routes: Map<ActorId, Route>,
    /// Routes with messages in flight or pending changes. May also contain quiet routes until the next cleanup.
    // INVARIANT: it contains every route that is not quiet. Requests are not settled while a route is busy.
    busy: BTreeSet<ActorId>,
    /// Routes whose directory owner was dead, to be retried when slots get new owners. May contain unblocked routes for
    /// a while.
    blocked: BTreeSet<ActorId>,
    /// Routes to re-check when this peer acknowledges a frame.
    waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    /// Peers that are leaving: no path may lead to them.
    leaving_peers: BTreeSet<NodeId>,
}

/// A path that has changed. The node sends these messages along the new one, in order, and re-checks the activations and
/// moves that wait for the path to be clear.
#[derive(Debug)]
pub(super) struct PathChange {
    pub(super) actor: ActorId,
    pub(super) messages: VecDeque<Arc<Message>>,
}

impl Routing {
    /// The route to an actor, if there is one.
    pub(super) fn get(&self, actor: &ActorId) -> Option<&Route> {
        self.routes.get(actor)
    }

    /// Adds the sizes of this part's tables.
    pub(super) fn measure(&self, sizes: &mut TableSizes) {
        sizes.routes = self.routes.len();
        for route in self.routes.values() {
            sizes.unsettled += usize::from(!route.is_quiet());
            sizes.held += route.waiting().count();
            sizes.held_most = sizes.held_most.max(route.held.len());
        }
    }

    /// Whether messages to an actor may be in flight or held.
    pub(super) fn is_busy(&self, actor: &ActorId) -> bool {
        self.busy.contains(actor)
    }

    /// The first route with a message of this sender that has no place in its receiver's queue yet.
    pub(super) fn unsettled_for(&self, sender: &ActorId) -> Option<&ActorId> {
        self.busy.iter().find(|actor| self.is_unsettled(actor, sender))
    }

    /// Whether the route to an actor has a message of this sender without a place in the queue, as far as it knows.
    pub(super) fn is_unsettled(&self, actor: &ActorId, sender: &ActorId) -> bool {
        let is_it = |caller: &Caller| is_actor(caller, sender);
        self.routes.get(actor).is_some_and(|route| route.waits_for(is_it))
    }

    /// The host of an actor when this node last sent it a message.
    pub(super) fn last_known(&self, actor: &ActorId) -> Option<NodeId> {
        match self.routes.get(actor)?.path {
            Path::Direct { node, .. } => Some(node),
            Path::Blocked | Path::Asking(_) => None,
        }
    }

    /// Sends a message of a local caller to an actor on another node. Returns the message if a bound is reached.
    pub(super) fn send(&mut self, env: &mut Env, calls: &mut Calls, message: Arc<Message>) -> Result<(), NoRoom> {
        let Some(route) = self.routes.get_mut(&message.target) else {
            self.ask(env, calls, message, VecDeque::new(), 0);
            return Ok(());
        };
        match &mut route.path {
            Path::Direct {
                node,
                epoch,
                last,
                leaving: None,
                ..
            } => {
                if env.is_full(*node) {
                    return Err(NoRoom(Full::Link, message));
                }
                let (node, call) = (*node, message.header.call);
                let epoch = Some(*epoch);
                *last = env.send(node, Body::Message { message, epoch });
                calls.record_at(call, node);
            }
            Path::Asking(_) if env.planted.is(Bug::AskForMany) => {
                let (owner, epoch) = (env.directory_of(&message.target), None);
                env.send(owner, Body::Message { message, epoch });
            }
            _ if route.held.len() < env.limits.held_per_actor => route.held.push_back(message),
            _ => return Err(NoRoom(Full::Actor, message)),
        }
        Ok(())
    }

    /// Sends a message through the directory. Messages after it are held until it has landed.
    fn ask(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        message: Arc<Message>,
        mut held: VecDeque<Arc<Message>>,
        returns: u32,
    ) {
        if self.routes.len() >= env.limits.routes {
            self.forget_quiet_routes(env);
        }
        let actor = message.target.clone();
        let owner = env.directory_of(&actor);
        let path = if env.is_dead(owner) {
            held.push_front(message);
            self.blocked.insert(actor.clone());
            Path::Blocked
        } else {
            let call = message.header.call;
            let caller = message.header.caller.clone();
            calls.record_at(call, owner);
            let epoch = None;
            env.send(owner, Body::Message { message, epoch });
            Path::Asking(Asking {
                call,
                caller,
                at: vec![owner],
                returns,
            })
        };
        self.busy.insert(actor.clone());
        self.routes.insert(actor, Route { path, held });
    }

    fn remove(&mut self, actor: &ActorId) -> Option<Route> {
        self.busy.remove(actor);
        self.routes.remove(actor)
    }

    /// Evicts half of the quiet routes. The choice only affects performance, and a rare bulk eviction is cheaper than
    /// frequent small ones.
    fn forget_quiet_routes(&mut self, env: &Env) {
        let mut keep = false;
        self.routes.retain(|_, route| {
            let quiet = route.is_quiet()
                && matches!(route.path, Path::Direct { node, last, .. } if env.acknowledged(node) >= last);
            keep = !keep;
            !quiet || keep
        });
    }

    /// Points the route at the new host of an actor that moved away. All held messages have been sent there, so the
    /// path is clear.
    pub(super) fn follow(&mut self, actor: &ActorId, node: NodeId, epoch: ActivationEpoch) {
        if self.leaving_peers.contains(&node) {
            // The node will lose the actor shortly, and must get no message after it has left.
            self.remove(actor);
            return;
        }
        let path = Path::Direct {
            node,
            epoch,
            last: 0,
            leaving: None,
            kept: BTreeMap::new(),
        };
        let held = VecDeque::new();
        self.busy.remove(actor);
        self.routes.insert(actor.clone(), Route { path, held });
    }

    /// Drops a path on which no message is on its way any more. The held messages look for a new one.
    fn drop_path(&mut self, actor: &ActorId) -> PathChange {
        let route = self.remove(actor).expect("the caller checked that there is a route");
        PathChange {
            actor: actor.clone(),
            messages: route.held,
        }
    }

    /// Switches to another path once everything sent along the present one is accounted for.
    pub(super) fn leave(&mut self, env: &mut Env, actor: &ActorId, next: Place) -> Option<PathChange> {
        let Path::Direct { leaving, .. } = &mut self.routes.get_mut(actor)?.path else {
            return None;
        };
        leaving.get_or_insert_with(|| Box::new(Leaving::to(next))).next = next;
        self.busy.insert(actor.clone());
        self.settle(env, actor)
    }

    /// Takes the next path if everything sent along the one being left is accounted for.
    pub(super) fn settle(&mut self, env: &mut Env, actor: &ActorId) -> Option<PathChange> {
        let route = self.routes.get_mut(actor)?;
        let Path::Direct {
            node,
            last,
            leaving: Some(leaving),
            kept,
            ..
        } = &mut route.path
        else {
            return None;
        };
        if !kept.is_empty() {
            // The node will report the fate of each kept message.
            return None;
        }
        if env.acknowledged(*node) < *last {
            let node = *node;
            if !std::mem::replace(&mut leaving.pinged, true) {
                env.send(node, Body::Ping);
            }
            self.waiting.entry(node).or_default().insert(actor.clone());
            return None;
        }
        let next = leaving.next;
        let mut messages = std::mem::take(&mut leaving.returned);
        let returned = messages.len();
        messages.append(&mut route.held);
        if env.planted.is(Bug::ReturnedLast) {
            messages.rotate_left(returned);
        }
        match next {
            Place::Host(node, epoch) if node != env.me => self.follow(actor, node, epoch),
            _ => drop(self.remove(actor)),
        }
        let actor = actor.clone();
        Some(PathChange { actor, messages })
    }

    /// Takes the actors whose paths are to be [settled](Self::settle) after acknowledgements of this peer.
    pub(super) fn take_waiting(&mut self, peer: NodeId) -> BTreeSet<ActorId> {
        self.waiting.remove(&peer).unwrap_or_default()
    }
}

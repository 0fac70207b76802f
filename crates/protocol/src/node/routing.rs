//! Paths to actors: where messages of local callers go, and how a path changes without reordering them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Caller, Message, NodeId, NotDelivered};

use super::Node;
use super::measures::Full;
use crate::Body;
use crate::bug::Bug;
use crate::route::{Asking, Leaving, Path, Place, Route};

/// Bound on the returns of one message sent through the directory. Several are normal until the directory learns that
/// an activation is over.
const RETURNS_MAX: u32 = 1000;

impl Node {
    /// The host of an actor when this node last sent it a message.
    pub fn last_known(&self, actor: &ActorId) -> Option<NodeId> {
        match self.routes.get(actor)?.path {
            Path::Direct { node, .. } => Some(node),
            Path::Blocked | Path::Asking(_) => None,
        }
    }

    /// Sends a message of a local caller to an actor on another node.
    pub(super) fn send_along_route(&mut self, message: Arc<Message>) {
        let Some(route) = self.routes.get_mut(&message.target) else {
            return self.ask(message, VecDeque::new(), 0);
        };
        match &mut route.path {
            Path::Direct {
                node,
                epoch,
                last,
                leaving: None,
                ..
            } => {
                if self.sessions.is_full(*node) {
                    return self.reject_full(Full::Link, message);
                }
                let (node, call) = (*node, message.header.call);
                let epoch = Some(*epoch);
                *last = self.sessions.send(node, Body::Message { message, epoch });
                self.call_is_at(call, node);
            }
            Path::Asking(_) if self.sessions.planted.is(Bug::AskForMany) => {
                let (owner, epoch) = (self.sessions.directory_of(&message.target), None);
                self.sessions.send(owner, Body::Message { message, epoch });
            }
            _ if route.held.len() < self.sessions.limits.held_per_actor => route.held.push_back(message),
            _ => self.reject_full(Full::Actor, message),
        }
    }

    /// Sends a message through the directory. Messages after it are held until it has landed.
    fn ask(&mut self, message: Arc<Message>, mut held: VecDeque<Arc<Message>>, returns: u32) {
        if self.routes.len() >= self.sessions.limits.routes {
            self.forget_quiet_routes();
        }
        let actor = message.target.clone();
        let owner = self.sessions.directory_of(&actor);
        let path = if self.sessions.is_dead(owner) {
            held.push_front(message);
            self.blocked_routes.insert(actor.clone());
            Path::Blocked
        } else {
            let call = message.header.call;
            let caller = message.header.caller.clone();
            self.call_is_at(call, owner);
            let epoch = None;
            self.sessions.send(owner, Body::Message { message, epoch });
            Path::Asking(Asking {
                call,
                caller,
                at: vec![owner],
                returns,
            })
        };
        self.busy_routes.insert(actor.clone());
        self.routes.insert(actor, Route { path, held });
    }

    fn remove_route(&mut self, actor: &ActorId) -> Option<Route> {
        self.busy_routes.remove(actor);
        self.routes.remove(actor)
    }

    /// Evicts half of the quiet routes. The choice only affects performance, and a rare bulk eviction is cheaper than
    /// frequent small ones.
    fn forget_quiet_routes(&mut self) {
        let sessions = &self.sessions;
        let mut keep = false;
        self.routes.retain(|_, route| {
            let quiet = route.is_quiet()
                && matches!(route.path, Path::Direct { node, last, .. } if sessions.acknowledged(node) >= last);
            keep = !keep;
            !quiet || keep
        });
    }

    /// Points the route at the new host of an actor that moved away. All held messages have been sent there, so the
    /// path is clear.
    pub(super) fn route_follows(&mut self, actor: &ActorId, node: NodeId, epoch: ActivationEpoch) {
        if self.is_leaving(node) {
            // The node will lose the actor shortly, and must get no message after it has left.
            self.remove_route(actor);
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
        self.busy_routes.remove(actor);
        self.routes.insert(actor.clone(), Route { path, held });
    }

    /// Records that a message was forwarded from one node to another.
    pub(super) fn on_passed_on(&mut self, actor: ActorId, call: CallId, to: NodeId) {
        self.sessions.notice(to);
        let dead = self.sessions.is_dead(to);
        if dead {
            self.fail_lost_call(call);
        } else {
            self.call_may_be_at(call, to);
        }
        let Some(route) = self.routes.get_mut(&actor) else {
            return;
        };
        if let Path::Asking(asking) = &mut route.path
            && asking.call == call
        {
            if !asking.at.contains(&to) {
                asking.at.push(to);
            }
            if dead {
                self.ask_next(&actor);
            }
        }
    }

    /// Sends the next held messages: none is on its way through the directory any more.
    pub(super) fn ask_next(&mut self, actor: &ActorId) {
        let route = self
            .remove_route(actor)
            .expect("the caller checked that there is a route");
        self.send_all(route.held);
        self.path_changed(actor);
    }

    /// Re-checks activations and moves that wait for this path to be clear.
    fn path_changed(&mut self, actor: &ActorId) {
        self.own_messages_settled(actor);
        self.open_if_clear(actor);
    }

    /// Sends held messages. Calls that are no longer pending are dropped.
    fn send_all(&mut self, messages: VecDeque<Arc<Message>>) {
        for message in messages {
            if message.header.one_way || self.is_pending(message.header.call) {
                self.send_own(message);
            }
        }
    }

    /// Handles the report that a forwarded message has its place in the actor's queue.
    pub(super) fn on_landed(&mut self, from: NodeId, actor: ActorId, call: CallId, epoch: ActivationEpoch) {
        self.call_is_at(call, from);
        let Some(route) = self.routes.get_mut(&actor) else {
            return;
        };
        match &mut route.path {
            Path::Asking(asking) if asking.call == call => {}
            Path::Direct { kept, .. } => {
                kept.remove(&call);
                if route.is_quiet() {
                    self.busy_routes.remove(&actor);
                }
                self.settle_route(&actor);
                return self.path_changed(&actor);
            }
            _ => return,
        }
        let held = std::mem::take(&mut route.held);
        if from == self.sessions.me {
            self.remove_route(&actor);
        } else {
            self.route_follows(&actor, from, epoch);
        }
        self.send_all(held);
        self.path_changed(&actor);
    }

    /// Handles the report that a message is kept at its receiver's next host.
    pub(super) fn on_kept(&mut self, actor: &ActorId, call: CallId, caller: Caller) {
        if let Some(route) = self.routes.get_mut(actor)
            && let Path::Direct { kept, .. } = &mut route.path
        {
            kept.insert(call, caller);
            self.busy_routes.insert(actor.clone());
        }
    }

    /// Handles a returned message: the activation that it was meant for is not there.
    pub(super) fn on_returned(
        &mut self,
        from: NodeId,
        message: Arc<Message>,
        place: Option<(NodeId, ActivationEpoch)>,
    ) {
        let call = message.header.call;
        if call.origin != self.sessions.me {
            return;
        }
        if !message.header.one_way && !self.is_pending(call) {
            // The call is no longer pending, so it is dropped; later messages may still wait for it to be accounted
            // for.
            return self.on_message_gone(&message.target, call);
        }
        self.call_is_at(call, self.sessions.me);
        let place = match place {
            Some((node, epoch)) if !self.sessions.is_dead(node) && !self.is_leaving(node) => {
                self.sessions.notice(node);
                Place::Host(node, epoch)
            }
            _ => Place::Directory,
        };
        let Some(route) = self.routes.get_mut(&message.target) else {
            return;
        };
        match &mut route.path {
            Path::Asking(asking) if asking.call == call => {
                let returns = asking.returns + 1;
                let held = std::mem::take(&mut route.held);
                self.retry_ask(message, held, returns);
            }
            Path::Direct {
                node,
                epoch,
                leaving,
                kept,
                ..
            } if *node == from => {
                kept.remove(&call);
                let leaving = leaving.get_or_insert_with(|| Box::new(Leaving::to(Place::Directory)));
                if !matches!(place, Place::Host(_, later) if later <= *epoch) {
                    leaving.learn(place);
                }
                leaving.returned.push_back(message.clone());
                self.busy_routes.insert(message.target.clone());
                self.settle_route(&message.target);
            }
            // This node has given up the message already, as lost with a node.
            _ => {}
        }
    }

    fn retry_ask(&mut self, message: Arc<Message>, held: VecDeque<Arc<Message>>, returns: u32) {
        if returns < RETURNS_MAX {
            return self.ask(message, held, returns);
        }
        let actor = message.target.clone();
        self.remove_route(&actor);
        self.reject(message, CallError::NotDelivered(NotDelivered::NotHere));
        self.send_all(held);
        self.path_changed(&actor);
    }

    /// Handles the rejection of a message.
    pub(super) fn on_rejected(&mut self, actor: &ActorId, call: CallId, error: CallError) {
        self.complete(call, Err(error));
        self.on_message_gone(actor, call);
    }

    /// Stops waiting for a message that will not run.
    pub(super) fn on_message_gone(&mut self, actor: &ActorId, call: CallId) {
        if self.is_asking(actor, call) {
            return self.ask_next(actor);
        }
        if let Some(route) = self.routes.get_mut(actor)
            && let Path::Direct { kept, .. } = &mut route.path
            && kept.remove(&call).is_some()
        {
            if route.is_quiet() {
                self.busy_routes.remove(actor);
            }
            self.settle_route(actor);
            self.path_changed(actor);
        }
    }

    /// Whether this message is on its way through the directory.
    pub(super) fn is_asking(&self, actor: &ActorId, call: CallId) -> bool {
        let path = self.routes.get(actor).map(|route| &route.path);
        matches!(path, Some(Path::Asking(asking)) if asking.call == call)
    }

    /// Switches to another path once everything sent along the present one is accounted for.
    pub(super) fn leave_path(&mut self, actor: &ActorId, next: Place) {
        if let Some(route) = self.routes.get_mut(actor)
            && let Path::Direct { leaving, .. } = &mut route.path
        {
            leaving.get_or_insert_with(|| Box::new(Leaving::to(next))).next = next;
            self.busy_routes.insert(actor.clone());
            self.settle_route(actor);
        }
    }

    /// Takes the next path if everything sent along the one being left is accounted for.
    fn settle_route(&mut self, actor: &ActorId) {
        let Some(route) = self.routes.get_mut(actor) else {
            return;
        };
        let Path::Direct {
            node,
            last,
            leaving: Some(leaving),
            kept,
            ..
        } = &mut route.path
        else {
            return;
        };
        if !kept.is_empty() {
            // The node will report the fate of each kept message.
            return;
        }
        if self.sessions.acknowledged(*node) < *last {
            let node = *node;
            if !std::mem::replace(&mut leaving.pinged, true) {
                self.sessions.send(node, Body::Ping);
            }
            self.routes_waiting.entry(node).or_default().insert(actor.clone());
            return;
        }
        let next = leaving.next;
        let mut messages = std::mem::take(&mut leaving.returned);
        let returned = messages.len();
        messages.append(&mut route.held);
        if self.sessions.planted.is(Bug::ReturnedLast) {
            messages.rotate_left(returned);
        }
        match next {
            Place::Host(node, epoch) if node != self.sessions.me => self.route_follows(actor, node, epoch),
            _ => drop(self.remove_route(actor)),
        }
        self.send_all(messages);
        self.path_changed(actor);
    }

    /// Re-checks paths that waited for acknowledgements of this peer.
    pub(super) fn settle_routes_waiting_for(&mut self, peer: NodeId) {
        for actor in self.routes_waiting.remove(&peer).unwrap_or_default() {
            self.settle_route(&actor);
        }
    }

    /// Handles the death of a node. `never_sent` are messages of local callers that were never transmitted to it.
    pub(super) fn routes_lost_with(&mut self, dead: NodeId, never_sent: Vec<Arc<Message>>) {
        let mut concerned: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let concerns = match &mut route.path {
                Path::Blocked => false,
                Path::Asking(asking) => asking.at.contains(&dead),
                Path::Direct { node, leaving, .. } => {
                    if let Some(leaving) = leaving
                        && matches!(leaving.next, Place::Host(next, _) if next == dead)
                    {
                        leaving.next = Place::Directory;
                    }
                    *node == dead
                }
            };
            if concerns {
                concerned.push(actor.clone());
            }
        }
        concerned.sort_unstable();
        let mut again: Vec<(ActorId, VecDeque<Arc<Message>>)> = Vec::new();
        for actor in concerned {
            let route = self.remove_route(&actor).expect("the route was found above");
            let mut messages = match route.path {
                Path::Direct {
                    leaving: Some(leaving), ..
                } => leaving.returned,
                _ => VecDeque::new(),
            };
            messages.extend(never_sent.iter().filter(|message| message.target == actor).cloned());
            messages.extend(route.held);
            again.push((actor, messages));
        }
        for (actor, messages) in again {
            self.send_all(messages);
            self.path_changed(&actor);
        }
    }

    /// Retries routes that were blocked by a dead slot owner.
    pub(super) fn routes_follow_owners(&mut self) {
        for actor in std::mem::take(&mut self.blocked_routes) {
            let path = self.routes.get(&actor).map(|route| &route.path);
            if matches!(path, Some(Path::Blocked)) {
                self.ask_next(&actor);
            }
        }
    }
}

//! Paths to actors: where messages of callers here go, and how a path changes without breaking their order.

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Caller, Message, NodeId, Overloaded};

use super::Node;
use crate::Body;
use crate::route::{Pass, Place, Route, Unsettled};

impl Node {
    /// Sends a message of a caller here to an actor that is not here.
    pub(super) fn send_along_route(&mut self, message: Message) {
        if !self.routes.contains_key(&message.target) {
            self.open_route(&message.target);
        }
        let route = self.routes.get_mut(&message.target).expect("it was opened");
        if let Some(unsettled) = &mut route.unsettled
            && unsettled.next.is_some()
        {
            if unsettled.held.len() < self.links.limits.held_per_actor {
                unsettled.held.push_back(message);
            } else {
                self.turn_away(message, 0, CallError::Overloaded(Overloaded::Actor));
            }
            return;
        }
        if self.links.is_full(route.node) {
            self.turn_away(message, 0, CallError::Overloaded(Overloaded::Node));
            return;
        }
        let (node, call, one_way) = (route.node, message.header.call, message.header.one_way);
        route.last = self.links.say(node, Body::Message(message));
        if !one_way {
            self.call_is_at(call, node);
        }
    }

    /// Makes the route to an actor that nothing is known of: through the directory, once it has an owner that lives.
    fn open_route(&mut self, actor: &ActorId) {
        if self.routes.len() >= self.links.limits.routes {
            self.forget_quiet_routes();
        }
        let owner = self.links.directory_of(actor);
        let unsettled = self.links.is_dead(owner).then(|| {
            Box::new(Unsettled {
                next: Some(Place::Directory),
                ..Unsettled::default()
            })
        });
        let route = Route {
            node: owner,
            epoch: None,
            last: 0,
            unsettled,
        };
        self.routes.insert(actor.clone(), route);
    }

    /// Makes room: half of the routes on which nothing is under way are forgotten. Which half does not matter for more
    /// than speed, and rarely doing much is cheaper than always doing a little.
    fn forget_quiet_routes(&mut self) {
        let links = &self.links;
        let mut keep = false;
        self.routes.retain(|_, route| {
            let quiet = route.unsettled.is_none() && links.acknowledged(route.node) >= route.last;
            keep = !keep;
            !quiet || keep
        });
    }

    /// The actor went from here to another node, and everything that waited has been sent there: the path is clear.
    pub(super) fn route_follows(&mut self, actor: &ActorId, to: NodeId, epoch: ActivationEpoch, last: u64) {
        let route = Route {
            node: to,
            epoch: Some(epoch),
            last,
            unsettled: None,
        };
        self.routes.insert(actor.clone(), route);
    }

    /// A message was passed on: its path is not what this node thought.
    pub(super) fn on_passed_on(
        &mut self,
        actor: ActorId,
        call: CallId,
        hops: u8,
        pass: Pass,
        epoch: Option<ActivationEpoch>,
    ) {
        let Pass::Open { from, to, .. } = pass else {
            unreachable!("it was just passed on");
        };
        let dead = self.links.is_dead(to);
        if !dead {
            self.call_may_be_at(call, to);
        }
        let Some(route) = self.routes.get_mut(&actor) else {
            if dead {
                self.call_is_lost(call);
            }
            return;
        };
        let unsettled = route.unsettled.get_or_insert_default();
        if hops > 1 {
            unsettled.close(call, hops - 1, from);
        }
        let was_confirmed = unsettled.open(call, hops, pass);
        if dead && !was_confirmed {
            // It went to a node that is already known to be dead: nothing of it is under way any more.
            unsettled.passes.remove(&(call, hops));
            self.call_is_lost(call);
        }
        let route = self.routes.get_mut(&actor).expect("it was there");
        let unsettled = route.unsettled.get_or_insert_default();
        let known = match unsettled.next {
            Some(Place::Host(_, epoch)) => Some(epoch),
            Some(Place::Directory) => None,
            None => route.epoch,
        };
        match epoch {
            Some(epoch) if known.is_none_or(|known| epoch > known) && !dead => {
                unsettled.next = Some(Place::Host(to, epoch));
            }
            // The host no longer has the actor and asks the directory.
            None if from == route.node && to != from && route.epoch.is_some() && unsettled.next.is_none() => {
                unsettled.next = Some(Place::Directory);
            }
            _ => {}
        }
        if !unsettled.has(call) {
            self.call_is_at(call, to);
        }
        self.settle_route(&actor);
    }

    /// A message that was passed on has a place in the actor's queue.
    pub(super) fn on_landed(&mut self, from: NodeId, actor: ActorId, call: CallId, hops: u8) {
        let Some(route) = self.routes.get_mut(&actor) else {
            return self.call_is_at(call, from);
        };
        let unsettled = route.unsettled.get_or_insert_default();
        unsettled.close(call, hops, from);
        if !unsettled.has(call) {
            self.call_is_at(call, from);
        }
        self.settle_route(&actor);
    }

    /// Looks whether a route may change now, and if so changes it and sends what was held.
    pub(super) fn settle_route(&mut self, actor: &ActorId) {
        let Some(route) = self.routes.get_mut(actor) else {
            return;
        };
        let Some(unsettled) = &mut route.unsettled else {
            return;
        };
        let mut lost = Vec::new();
        unsettled.passes.retain(|(call, _), pass| match pass {
            Pass::Open {
                to,
                void_at: Some(number),
                ..
            } if self.links.acknowledged(*to) >= *number => {
                lost.push(*call);
                false
            }
            _ => true,
        });
        let sent_settled = self.links.acknowledged(route.node) >= route.last;
        if unsettled.next.is_some() && !sent_settled && !unsettled.pinged {
            unsettled.pinged = true;
            self.links.say(route.node, Body::Ping);
        }
        let waits_for = if sent_settled {
            unsettled.passes.values().find_map(|pass| match pass {
                Pass::Open {
                    to, void_at: Some(_), ..
                } => Some(*to),
                _ => None,
            })
        } else {
            Some(route.node)
        };
        if let Some(node) = waits_for {
            self.routes_waiting.entry(node).or_default().insert(actor.clone());
        }
        let settled = sent_settled && unsettled.passes.is_empty();
        if settled {
            self.take_next_path(actor);
        } else if unsettled.is_idle() {
            route.unsettled = None;
        }
        for call in lost {
            self.call_is_lost(call);
        }
        if settled {
            self.own_messages_settled(actor);
        }
    }

    /// Everything sent along the old path has settled.
    fn take_next_path(&mut self, actor: &ActorId) {
        let route = self.routes.get_mut(actor).expect("the caller has it");
        let unsettled = route.unsettled.take().expect("the caller has it");
        match unsettled.next {
            None => return,
            Some(Place::Host(node, _)) if node == self.links.me => {
                self.routes.remove(actor);
            }
            Some(Place::Host(node, epoch)) => {
                route.node = node;
                route.epoch = Some(epoch);
                route.last = 0;
            }
            Some(Place::Directory) => {
                let owner = self.links.directory_of(actor);
                if self.links.is_dead(owner) {
                    // Until the slot has an owner that lives, what is held stays held.
                    route.node = owner;
                    route.unsettled = Some(unsettled);
                    return;
                }
                self.routes.remove(actor);
            }
        }
        for message in unsettled.held {
            self.send_own(message);
        }
        self.open_if_clear(actor);
    }

    /// The actor is here now: what callers here have sent along another path must have arrived before they may reach it
    /// straight.
    pub(super) fn route_ends_here(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        if let Some(route) = self.routes.get_mut(actor) {
            route.unsettled.get_or_insert_default().next = Some(Place::Host(self.links.me, epoch));
            self.settle_route(actor);
        }
    }

    /// A peer has handled more: routes that waited for it may change.
    pub(super) fn settle_routes_waiting_for(&mut self, peer: NodeId) {
        for actor in self.routes_waiting.remove(&peer).unwrap_or_default() {
            self.settle_route(&actor);
        }
    }

    /// A node died. `never_sent` are messages of callers here that never left for it.
    pub(super) fn routes_lost_with(&mut self, node: NodeId, never_sent: Vec<Message>) {
        let mut changed: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let through_it = route.node == node;
            if through_it {
                route.unsettled.get_or_insert_default();
            }
            if let Some(unsettled) = &mut route.unsettled {
                forget_passes(unsettled, node, through_it);
                if unsettled.next.is_none() && through_it
                    || matches!(unsettled.next, Some(Place::Host(next, _)) if next == node)
                {
                    unsettled.next = Some(Place::Directory);
                }
                changed.push(actor.clone());
            }
        }
        changed.sort_unstable();
        self.hold_again(never_sent);
        for actor in &changed {
            self.watch_orphaned_passes(actor, node);
        }
        for actor in changed {
            self.settle_route(&actor);
        }
    }

    /// Puts messages that never left back in front of those that are held.
    fn hold_again(&mut self, never_sent: Vec<Message>) {
        for message in never_sent.into_iter().rev() {
            let route = self.routes.get_mut(&message.target).expect("it was sent along a route");
            let unsettled = route.unsettled.as_mut().expect("its first hop died");
            unsettled.held.push_front(message);
        }
    }

    /// Messages that the dead node passed on may have arrived or not: as soon as their new node acknowledges something
    /// sent in knowledge of the death, those that it has not confirmed never will be.
    fn watch_orphaned_passes(&mut self, actor: &ActorId, dead: NodeId) {
        let Some(unsettled) = self.routes.get_mut(actor).and_then(|route| route.unsettled.as_mut()) else {
            return;
        };
        for pass in unsettled.passes.values_mut() {
            if let Pass::Open { from, to, void_at, .. } = pass
                && *from == dead
                && void_at.is_none()
            {
                *void_at = Some(self.links.say(*to, Body::Ping));
                self.routes_waiting.entry(*to).or_default().insert(actor.clone());
            }
        }
    }

    /// Slots have new owners: messages that went to an old one go to the new one from now on.
    pub(super) fn routes_follow_owners(&mut self) {
        let mut changed: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let waits = matches!(&route.unsettled, Some(unsettled) if unsettled.next == Some(Place::Directory));
            let moved = route.epoch.is_none() && self.links.directory_of(actor) != route.node;
            if moved && !waits {
                route.unsettled.get_or_insert_default().next.get_or_insert(Place::Directory);
            }
            if moved || waits {
                changed.push(actor.clone());
            }
        }
        changed.sort_unstable();
        for actor in changed {
            self.settle_route(&actor);
        }
    }

    /// Whether everything that an actor sent from here has a place in its receiver's queue.
    pub(super) fn is_sender_settled(&self, sender: &ActorId) -> bool {
        let is_it = |caller: &Caller| matches!(caller, Caller::Actor(caller) if caller == sender);
        let is_its = |message: &Message| is_it(&message.header.caller);
        let is_under_way = |body: &Body| matches!(body, Body::Message(message) if is_its(message));
        if self.links.unacknowledged().any(|(_, mut bodies)| bodies.any(is_under_way)) {
            return false;
        }
        let is_held = self.limbo.iter().any(|actor| {
            let held = &self.hosted[actor].held;
            held.iter().any(|held| is_its(&held.message))
        });
        if is_held {
            return false;
        }
        self.routes.values().all(|route| match &route.unsettled {
            None => true,
            Some(unsettled) => {
                let passes = unsettled.passes.values();
                let mut under_way = passes.filter(|pass| matches!(pass, Pass::Open { caller, .. } if is_it(caller)));
                under_way.next().is_none() && !unsettled.held.iter().any(is_its)
            }
        })
    }

    /// Asks everybody to whom something that this actor sent is on its way to acknowledge it at once.
    pub(super) fn hurry_settling(&mut self) {
        let peers: Vec<NodeId> = self
            .links
            .unacknowledged()
            .filter_map(|(peer, mut bodies)| bodies.any(|body| matches!(body, Body::Message(_))).then_some(peer))
            .collect();
        for peer in peers {
            self.links.say(peer, Body::Ping);
        }
    }
}

/// Forgets what went to a dead node; and if the dead node was the first hop, what only it could still speak of.
fn forget_passes(unsettled: &mut Unsettled, dead: NodeId, was_first_hop: bool) {
    let ended: Vec<(CallId, u8)> = unsettled
        .passes
        .iter()
        .filter(|(_, pass)| matches!(pass, Pass::Open { to, .. } if *to == dead))
        .map(|(key, _)| *key)
        .collect();
    for (call, hops) in ended {
        unsettled.passes.remove(&(call, hops));
        if let Some(Pass::Confirmed(_)) = unsettled.passes.get(&(call, hops + 1)) {
            unsettled.passes.remove(&(call, hops + 1));
        }
    }
    unsettled
        .passes
        .retain(|(_, hops), pass| !(was_first_hop && *hops == 1 && matches!(pass, Pass::Confirmed(_))));
}

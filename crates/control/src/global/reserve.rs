//! `reserve`: a server of its own for an actor. An empty one, else the one that is emptied at the least cost, else a new one.

use elastin_types::{ActorId, NodeId, Resource, ServerState, Time};

use super::Gem;
use super::event::GemCommand;
use super::provision::Wanted;
use super::room::{Terms, best, by_quality, others_have_room};
use super::view::Server;
use crate::{Candidate, Change, Held, Outcome, Proposal, Purpose, Refusal, Reservation, Unit, Wish};

/// How a `reserve` can be fulfilled.
enum Way {
    /// The actor stays, and its server is dedicated to it.
    Here,
    /// It moves to this server, which is empty or was emptied for it.
    Go(NodeId),
    /// This server is dedicated to it and has to be emptied first.
    Empty(NodeId),
    /// It moves to a server that another reserved actor has, because there can't be more servers.
    Share(NodeId, ActorId),
    /// A new server is needed.
    Add,
    /// Nothing can be done at present.
    No(Refusal),
}

impl Gem {
    /// Fulfils the `reserve` wishes of the servers that have just reported: the highest priority first, then the earlier
    /// rule, then the greatest use.
    pub(super) fn plan_reserves(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        let mut wishes: Vec<(NodeId, Wish)> = self
            .view
            .servers
            .values()
            .filter(|server| server.is_open && !server.is_draining())
            .flat_map(|server| {
                let node = server.node();
                server.report.wishes.iter().map(move |wish| (node, wish.clone()))
            })
            .collect();
        wishes.sort_by(|(_, one), (_, other)| {
            let used = |wish: &Wish| wish.unit.used[wish.resource];
            (other.priority.cmp(&one.priority))
                .then(one.cause.rule.cmp(&other.cause.rule))
                .then(used(other).total_cmp(&used(one)))
                .then_with(|| one.actor.cmp(&other.actor))
        });
        for (node, wish) in wishes {
            // Another wish may have taken its unit along already.
            if self.unit(node, &wish.unit.lead).is_some() {
                self.plan_reserve(now, node, wish, out);
            }
        }
    }

    fn plan_reserve(&mut self, now: Time, from: NodeId, wish: Wish, out: &mut Vec<GemCommand>) {
        let (way, candidates) = self.way(from, &wish);
        match way {
            Way::Here => self.dedicate(now, from, wish, None, out),
            Way::Go(to) => self.propose_reserve(now, from, to, wish, None, candidates),
            Way::Share(to, other) => self.propose_reserve(now, from, to, wish, Some(other), candidates),
            Way::Empty(node) => {
                let refusal = Refusal::AwaitingRoom;
                self.refuse_reserve(now, from, &wish, refusal, candidates, out);
                self.keep(node, self.reservation(&wish, None));
            }
            Way::Add => {
                let wanted = Wanted {
                    cause: Some(wish.cause.clone()),
                    count: 1,
                    reserved: Some(wish.actor.clone()),
                    keep: true,
                };
                let asked = self.add_servers(now, wanted, out);
                if asked {
                    self.refuse_reserve(now, from, &wish, Refusal::AwaitingServer, candidates, out);
                }
            }
            Way::No(refusal) => self.refuse_reserve(now, from, &wish, refusal, candidates, out),
        }
    }

    /// How a wish can be fulfilled, and which servers were considered for it.
    fn way(&self, from: NodeId, wish: &Wish) -> (Way, Vec<Candidate>) {
        let server = self.view.get(from).expect("a wish comes from a server in view");
        let own = |reservation: &&Reservation| reservation.actor == wish.actor;
        let is_alone = server.report.rest.actors == 0 && server.report.units.len() == 1;
        let nowhere = |way| (way, Vec::new());
        match (&wish.unit.held, server.reservations.iter().find(own)) {
            (Some(Held::Recent(_)), _) => nowhere(Way::No(Refusal::CameRecently)),
            (_, Some(reservation)) if reservation.shares_with.is_none() => nowhere(Way::No(Refusal::AwaitingRoom)),
            (Some(Held::Pinned(_, priority)), None) if *priority >= wish.priority => nowhere(Way::Here),
            (_, None) if is_alone && !server.is_reserved() => nowhere(Way::Here),
            (_, own) => match self.dedicated_to(&wish.actor) {
                Some(dedicated) if self.is_made_ready(dedicated) => nowhere(Way::Go(dedicated.node())),
                Some(_) => nowhere(Way::No(Refusal::AwaitingRoom)),
                None if server.report.unsettled => nowhere(Way::No(Refusal::Unsettled)),
                None => self.way_to_another(from, wish, own.is_some()),
            },
        }
    }

    /// Another server for the actor: an empty one, else the one that is emptied at the least cost, else a new one, else one
    /// that it shares. One that `shares` a server already waits for one of its own, and empties none for it.
    fn way_to_another(&self, from: NodeId, wish: &Wish, shares: bool) -> (Way, Vec<Candidate>) {
        let (empty, mut candidates) = self.empty_server(wish);
        if let Some(node) = empty {
            return (Way::Go(node), candidates);
        }
        if wish.awaiting || self.provisions.is_awaited_by(&wish.actor) {
            return (Way::No(Refusal::AwaitingServer), candidates);
        }
        let unfit = candidates.iter().find_map(|candidate| match &candidate.refused {
            // Where an empty server does not do, another one of the kind will not, either.
            Some(refusal @ (Refusal::NoRoom { .. } | Refusal::RefusedBefore)) => Some(refusal.clone()),
            _ => None,
        });
        let way = if shares {
            match unfit {
                None if self.may_grow() => Way::Add,
                _ => Way::No(Refusal::AtMaximum),
            }
        } else {
            match (self.cheapest_to_empty(from, wish, &mut candidates), unfit) {
                (Some(node), _) if node == from => Way::Here,
                (Some(node), _) => Way::Empty(node),
                (None, Some(refusal)) => Way::No(refusal),
                (None, None) if self.may_grow() => Way::Add,
                (None, None) => self.way_to_share(wish),
            }
        };
        (way, candidates)
    }

    /// Whether a server that is dedicated to an actor to come has been emptied for it.
    fn is_made_ready(&self, dedicated: &Server) -> bool {
        self.foreign_units(dedicated).is_empty() && dedicated.report.rest.actors == 0
    }

    /// The server that is dedicated to an actor which is not there yet.
    fn dedicated_to(&self, actor: &ActorId) -> Option<&Server> {
        self.view.servers.values().find(|server| {
            let awaited = |reservation: &Reservation| reservation.actor == *actor && !reservation.arrived;
            server.reservations.iter().any(awaited) && !server.is_draining()
        })
    }

    /// An empty server: one that was added for the actor first, then the smallest that has enough of the resource, then
    /// the largest.
    fn empty_server(&self, wish: &Wish) -> (Option<NodeId>, Vec<Candidate>) {
        let mut candidates: Vec<Candidate> = self
            .view
            .servers
            .values()
            .filter(|server| server.node() != wish.cause.server.unwrap_or(self.node) || server.is_empty())
            .map(|server| Candidate {
                node: server.node(),
                score: suitability(wish, server),
                refused: self.unfit_for(wish, server),
            })
            .collect();
        candidates.sort_by(by_quality);
        for worse in candidates.iter_mut().skip(1) {
            worse.refused.get_or_insert(Refusal::Worse);
        }
        (best(&candidates), candidates)
    }

    fn unfit_for(&self, wish: &Wish, server: &Server) -> Option<Refusal> {
        if server.is_draining() {
            return Some(Refusal::Draining);
        }
        if let Some(reservation) = server.reservations.first() {
            return Some(Refusal::ServerReserved(reservation.actor.clone()));
        }
        if let Some(other) = server.kept_for.as_ref().filter(|other| **other != wish.actor) {
            return Some(Refusal::ServerReserved(other.clone()));
        }
        if !server.is_empty() {
            return Some(Refusal::AwaitingRoom);
        }
        if wish.unit.refused_by.contains(&server.node()) {
            return Some(Refusal::RefusedBefore);
        }
        let percent = server.percent_with(&wish.unit, Resource::Mem)?;
        let limit = Terms::WHOLE.limits.mem;
        (percent > limit).then_some(Refusal::NoRoom {
            resource: Resource::Mem,
            percent,
            limit,
        })
    }

    /// The server that is emptied with the fewest and smallest moves, if the others have room for what is on it. It may
    /// be the actor's own.
    fn cheapest_to_empty(&self, from: NodeId, wish: &Wish, candidates: &mut Vec<Candidate>) -> Option<NodeId> {
        let terms = Terms::named(&self.policy);
        let mut cheapest: Option<(u64, f64, NodeId)> = None;
        for server in self.view.common().filter(|server| server.report.rest.actors == 0) {
            let node = server.node();
            let others: Vec<&Unit> = server
                .report
                .units
                .iter()
                .filter(|unit| unit.lead != wish.unit.lead)
                .collect();
            if others.iter().any(|unit| unit.held.is_some()) {
                continue;
            }
            // What the actor leaves behind is room for others, but where it stays there is none.
            let without = (node != from).then_some((from, &wish.unit));
            if !others_have_room(&self.policy, &self.view, node, &others, wish.resource, &terms, without) {
                continue;
            }
            let own_move = u64::from(node != from);
            let bytes: f64 = others.iter().map(|unit| unit.used.mem).sum();
            let moves = others.iter().map(|unit| unit.count).sum::<u64>() + own_move * wish.unit.count;
            if cheapest.is_none_or(|(least, least_bytes, _)| (moves, bytes) < (least, least_bytes)) {
                cheapest = Some((moves, bytes, node));
            }
        }
        let (moves, _, node) = cheapest?;
        candidates.retain(|candidate| candidate.node != node);
        candidates.insert(
            0,
            Candidate {
                node,
                score: -(moves as f64),
                refused: None,
            },
        );
        Some(node)
    }

    /// At the maximum of servers, those with least use share servers with each other.
    fn way_to_share(&self, wish: &Wish) -> Way {
        let least = self
            .view
            .servers
            .values()
            .filter(|server| !server.is_draining() && !wish.unit.refused_by.contains(&server.node()))
            .filter_map(|server| {
                let reservation = server.reservations.iter().find(|reservation| reservation.arrived)?;
                let percent = server.percent_with(&wish.unit, wish.resource)?;
                (percent <= Terms::WHOLE.limits[wish.resource]).then_some((percent, server.node(), &reservation.actor))
            })
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        match least {
            Some((_, node, actor)) => Way::Share(node, actor.clone()),
            None => Way::No(Refusal::AtMaximum),
        }
    }

    /// Dedicates the server that an actor is on.
    fn dedicate(&mut self, now: Time, node: NodeId, wish: Wish, shared: Option<ActorId>, out: &mut Vec<GemCommand>) {
        let there = self.view.get(node).and_then(|server| server.reservations.first());
        let shared_with = shared.or_else(|| there.map(|reservation| reservation.actor.clone()));
        let change = Change::Dedicate {
            actor: wish.actor.clone(),
            node,
            resource: wish.resource,
            shared_with: shared_with.clone(),
        };
        let decision = self.decision(now, Some(wish.cause.clone()), change, Vec::new());
        out.push(GemCommand::record(decision.with_outcome(Outcome::Done)));
        self.keep(node, self.reservation(&wish, shared_with));
    }

    /// From now on the server is dedicated to the actor; its manager is told with its next answer.
    fn keep(&mut self, node: NodeId, reservation: Reservation) {
        if let Some(server) = self.view.servers.get_mut(&node) {
            server.reservations.push(reservation.clone());
            server.kept_for = None;
        }
        self.dedications.entry(node).or_default().push(reservation);
    }

    fn reservation(&self, wish: &Wish, shares_with: Option<ActorId>) -> Reservation {
        Reservation {
            actor: wish.actor.clone(),
            resource: wish.resource,
            cause: wish.cause.clone(),
            used: wish.used,
            shares_with,
            arrived: false,
        }
    }

    fn propose_reserve(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        wish: Wish,
        shares_with: Option<ActorId>,
        candidates: Vec<Candidate>,
    ) {
        let change = Change::Move {
            actor: wish.actor.clone(),
            with: Vec::new(),
            from,
            to: Some(to),
            purpose: Purpose::Reserve(wish.resource),
        };
        let decision = self.decision(now, Some(wish.cause.clone()), change, candidates);
        let reservation = self.reservation(&wish, shares_with);
        if let Some(target) = self.view.servers.get_mut(&to) {
            target.reservations.push(reservation.clone());
            target.kept_for = None;
        }
        let proposal = Proposal {
            decision,
            priority: wish.priority,
            score: wish.unit.used[wish.resource],
            reservation: Some(reservation),
        };
        self.propose(proposal, &wish.unit.lead);
    }

    fn refuse_reserve(
        &mut self,
        now: Time,
        from: NodeId,
        wish: &Wish,
        refusal: Refusal,
        candidates: Vec<Candidate>,
        out: &mut Vec<GemCommand>,
    ) {
        let change = Change::Move {
            actor: wish.actor.clone(),
            with: Vec::new(),
            from,
            to: None,
            purpose: Purpose::Reserve(wish.resource),
        };
        let decision = self.decision(now, Some(wish.cause.clone()), change, candidates);
        out.push(GemCommand::record(decision.with_outcome(Outcome::Refused(refusal))));
    }

    /// Whether the cluster may get another server.
    pub(super) fn may_grow(&self) -> bool {
        self.size() < self.settings.servers_max
    }

    /// How many servers the cluster has or will have: those that leave do not count.
    pub(super) fn size(&self) -> u32 {
        let staying = self.members.iter().filter(|member| {
            let active = member.state == ServerState::Active;
            member.hosts && active && !self.leaving.contains_key(&member.node)
        });
        u32::try_from(staying.count()).unwrap_or(u32::MAX) + self.provisions.unnamed()
    }
}

/// How good an empty server is for a reserved actor.
fn suitability(wish: &Wish, server: &Server) -> f64 {
    let capacity = server.capacity(wish.resource).unwrap_or(f64::MAX);
    if server.kept_for.as_ref() == Some(&wish.actor) {
        f64::MAX
    } else if capacity >= wish.unit.used[wish.resource] {
        // One that has too much is better than one that has too little.
        wish.unit.used[wish.resource] / capacity
    } else {
        capacity / wish.unit.used[wish.resource] - 1.0
    }
}

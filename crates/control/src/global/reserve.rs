//! `reserve`: a dedicated server for an actor. An empty one, else the cheapest one to empty, else a new one.

use elastin_types::{ActorId, NodeId, Resource, ServerState};

use super::Gem;
use super::event::GemCommand;
use super::provision::Wanted;
use super::room::{Terms, others_have_room};
use super::view::Server;
use crate::decision::{best, rank};
use crate::record::{record, refuse};
use crate::{Candidate, Change, Held, Outcome, Proposal, Purpose, Refusal, Reservation, Unit, Wish};

/// How a `reserve` can be fulfilled.
enum Plan {
    /// The actor stays, and its server is dedicated to it.
    Stay,
    /// It moves to this server, which is empty or was emptied for it.
    MoveTo(NodeId),
    /// This server is dedicated to it and has to be emptied first.
    Empty(NodeId),
    /// It moves to the server of another reserved actor, because the cluster is at its maximum size.
    Share(NodeId, ActorId),
    /// A new server is needed.
    AddServer,
    /// Nothing can be done at present.
    Refuse(Refusal),
}

impl Gem {
    /// Handles the `reserve` requests of the servers that have just reported: highest priority first, then earlier
    /// rule, then greatest use.
    pub(super) fn plan_reserves(&mut self, out: &mut Vec<GemCommand>) {
        let mut requests: Vec<(NodeId, Wish)> = self
            .view
            .servers
            .values()
            .filter(|server| server.is_open && !server.is_draining())
            .flat_map(|server| {
                let node = server.node();
                server.report.wishes.iter().map(move |request| (node, request.clone()))
            })
            .collect();
        requests.sort_by(|(_, one), (_, other)| one.most_urgent_first(other));
        for (node, request) in requests {
            // Another request may already have moved its unit.
            if self.unit(node, &request.unit.lead).is_some() {
                self.plan_reserve(node, request, out);
            }
        }
    }

    fn plan_reserve(&mut self, from: NodeId, request: Wish, out: &mut Vec<GemCommand>) {
        let (plan, candidates) = self.choose_plan(from, &request);
        match plan {
            Plan::Stay => self.dedicate(from, request, None, out),
            Plan::MoveTo(to) => self.propose_reserve(from, to, request, None, candidates),
            Plan::Share(to, other) => self.propose_reserve(from, to, request, Some(other), candidates),
            Plan::Empty(node) => {
                let refusal = Refusal::AwaitingRoom;
                self.refuse_reserve(from, &request, refusal, candidates, out);
                self.keep(node, self.reservation(&request, None));
            }
            Plan::AddServer => {
                let wanted = Wanted {
                    cause: Some(request.cause.clone()),
                    count: 1,
                    reserved: Some(request.actor.clone()),
                    keep: true,
                };
                let asked = self.add_servers(wanted, out);
                if asked {
                    self.refuse_reserve(from, &request, Refusal::AwaitingServer, candidates, out);
                }
            }
            Plan::Refuse(refusal) => self.refuse_reserve(from, &request, refusal, candidates, out),
        }
    }

    /// How a request can be fulfilled, with the servers considered.
    fn choose_plan(&self, from: NodeId, request: &Wish) -> (Plan, Vec<Candidate>) {
        let server = self
            .view
            .get(from)
            .expect("a reserve request comes from a server in view");
        let own = |reservation: &&Reservation| reservation.actor == request.actor;
        let is_alone = server.report.rest.actors == 0 && server.report.units.len() == 1;
        let nowhere = |plan| (plan, Vec::new());
        match (&request.unit.held, server.reservations.iter().find(own)) {
            (Some(Held::Recent(_)), _) => nowhere(Plan::Refuse(Refusal::CameRecently)),
            (_, Some(reservation)) if reservation.shares_with.is_none() => nowhere(Plan::Refuse(Refusal::AwaitingRoom)),
            (Some(Held::Pinned(_, priority)), None) if *priority >= request.priority => nowhere(Plan::Stay),
            (_, None) if is_alone && !server.is_reserved() => nowhere(Plan::Stay),
            (_, own) => match self.dedicated_to(&request.actor) {
                Some(dedicated) if self.is_made_ready(dedicated) => nowhere(Plan::MoveTo(dedicated.node())),
                Some(_) => nowhere(Plan::Refuse(Refusal::AwaitingRoom)),
                None if server.report.unsettled => nowhere(Plan::Refuse(Refusal::Unsettled)),
                None => self.plan_elsewhere(from, request, own.is_some()),
            },
        }
    }

    /// Another server for the actor: an empty one, else the cheapest one to empty, else a new one, else a shared one.
    /// An actor that already `shares` a server waits for a new one; no server is emptied for it.
    fn plan_elsewhere(&self, from: NodeId, request: &Wish, shares: bool) -> (Plan, Vec<Candidate>) {
        let (empty, mut candidates) = self.empty_server(request);
        if let Some(node) = empty {
            return (Plan::MoveTo(node), candidates);
        }
        if request.awaiting || self.provisions.is_awaited_by(&request.actor) {
            return (Plan::Refuse(Refusal::AwaitingServer), candidates);
        }
        let unfit = candidates.iter().find_map(|candidate| match &candidate.refused {
            // If an empty server is unfit, another one of the same kind is, too.
            Some(refusal @ (Refusal::NoRoom { .. } | Refusal::RefusedBefore)) => Some(refusal.clone()),
            _ => None,
        });
        let plan = if shares {
            match unfit {
                None if self.may_grow() => Plan::AddServer,
                _ => Plan::Refuse(Refusal::AtMaximum),
            }
        } else {
            match (self.cheapest_to_empty(from, request, &mut candidates), unfit) {
                (Some(node), _) if node == from => Plan::Stay,
                (Some(node), _) => Plan::Empty(node),
                (None, Some(refusal)) => Plan::Refuse(refusal),
                (None, None) if self.may_grow() => Plan::AddServer,
                (None, None) => self.plan_sharing(request),
            }
        };
        (plan, candidates)
    }

    /// Whether a server dedicated to an actor has been emptied for its arrival.
    fn is_made_ready(&self, dedicated: &Server) -> bool {
        self.foreign_units(dedicated).is_empty() && dedicated.report.rest.actors == 0
    }

    /// The server dedicated to an actor that has not arrived yet.
    fn dedicated_to(&self, actor: &ActorId) -> Option<&Server> {
        self.view.servers.values().find(|server| {
            let awaited = |reservation: &Reservation| reservation.actor == *actor && !reservation.arrived;
            server.reservations.iter().any(awaited) && !server.is_draining()
        })
    }

    /// An empty server: one added for the actor first, then the smallest with enough of the resource, then the largest.
    fn empty_server(&self, request: &Wish) -> (Option<NodeId>, Vec<Candidate>) {
        let mut candidates: Vec<Candidate> = self
            .view
            .servers
            .values()
            .filter(|server| server.node() != request.cause.server.unwrap_or(self.context.node) || server.is_empty())
            .map(|server| Candidate {
                node: server.node(),
                score: suitability(request, server),
                refused: self.unfit_for(request, server),
            })
            .collect();
        rank(&mut candidates);
        (best(&candidates), candidates)
    }

    fn unfit_for(&self, request: &Wish, server: &Server) -> Option<Refusal> {
        if server.is_draining() {
            return Some(Refusal::Draining);
        }
        if let Some(reservation) = server.reservations.first() {
            return Some(Refusal::ServerReserved(reservation.actor.clone()));
        }
        if let Some(other) = server.kept_for.as_ref().filter(|other| **other != request.actor) {
            return Some(Refusal::ServerReserved(other.clone()));
        }
        if !server.is_empty() {
            return Some(Refusal::AwaitingRoom);
        }
        if request.unit.refused_by.contains(&server.node()) {
            return Some(Refusal::RefusedBefore);
        }
        let percent = server.percent_with(&request.unit, Resource::Mem)?;
        let limit = Terms::WHOLE.limits.mem;
        (percent > limit).then_some(Refusal::NoRoom {
            resource: Resource::Mem,
            percent,
            limit,
        })
    }

    /// The server that can be emptied with the fewest and smallest moves, if the others have room for its actors. It
    /// may be the actor's own.
    fn cheapest_to_empty(&self, from: NodeId, request: &Wish, candidates: &mut Vec<Candidate>) -> Option<NodeId> {
        let terms = Terms::named(&self.context.policy);
        let mut cheapest: Option<(u64, f64, NodeId)> = None;
        for server in self.view.common().filter(|server| server.report.rest.actors == 0) {
            let node = server.node();
            let others: Vec<&Unit> = server
                .report
                .units
                .iter()
                .filter(|unit| unit.lead != request.unit.lead)
                .collect();
            if others.iter().any(|unit| unit.held.is_some()) {
                continue;
            }
            // The actor's departure leaves room for others on its server, unless it stays there.
            let without = (node != from).then_some((from, &request.unit));
            if !others_have_room(
                &self.context.policy,
                &self.view,
                node,
                &others,
                request.resource,
                &terms,
                without,
            ) {
                continue;
            }
            let own_move = u64::from(node != from);
            let bytes: f64 = others.iter().map(|unit| unit.used.mem).sum();
            let moves = others.iter().map(|unit| unit.count).sum::<u64>() + own_move * request.unit.count;
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

    /// At the maximum number of servers, reserved actors share the dedicated server with the least use.
    fn plan_sharing(&self, request: &Wish) -> Plan {
        let least = self
            .view
            .servers
            .values()
            .filter(|server| !server.is_draining() && !request.unit.refused_by.contains(&server.node()))
            .filter_map(|server| {
                let reservation = server.reservations.iter().find(|reservation| reservation.arrived)?;
                let percent = server.percent_with(&request.unit, request.resource)?;
                (percent <= Terms::WHOLE.limits[request.resource]).then_some((
                    percent,
                    server.node(),
                    &reservation.actor,
                ))
            })
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        match least {
            Some((_, node, actor)) => Plan::Share(node, actor.clone()),
            None => Plan::Refuse(Refusal::AtMaximum),
        }
    }

    /// Dedicates the server that an actor is already on.
    fn dedicate(&mut self, node: NodeId, request: Wish, shared: Option<ActorId>, out: &mut Vec<GemCommand>) {
        let there = self.view.get(node).and_then(|server| server.reservations.first());
        let shared_with = shared.or_else(|| there.map(|reservation| reservation.actor.clone()));
        let change = Change::Dedicate {
            actor: request.actor.clone(),
            node,
            resource: request.resource,
            shared_with: shared_with.clone(),
        };
        let decision = self.context.decision(Some(request.cause.clone()), change, Vec::new());
        record(decision, Outcome::Done, out);
        self.keep(node, self.reservation(&request, shared_with));
    }

    /// Dedicates the server to the actor; its local manager is notified with the next reply.
    fn keep(&mut self, node: NodeId, reservation: Reservation) {
        if let Some(server) = self.view.servers.get_mut(&node) {
            server.reservations.push(reservation.clone());
            server.kept_for = None;
        }
        self.dedications.entry(node).or_default().push(reservation);
    }

    fn reservation(&self, request: &Wish, shares_with: Option<ActorId>) -> Reservation {
        Reservation {
            actor: request.actor.clone(),
            resource: request.resource,
            cause: request.cause.clone(),
            used: request.used,
            shares_with,
            arrived: false,
        }
    }

    fn propose_reserve(
        &mut self,
        from: NodeId,
        to: NodeId,
        request: Wish,
        shares_with: Option<ActorId>,
        candidates: Vec<Candidate>,
    ) {
        let change = Change::moving(
            request.actor.clone(),
            from,
            Some(to),
            Purpose::Reserve(request.resource),
        );
        let decision = self.context.decision(Some(request.cause.clone()), change, candidates);
        let reservation = self.reservation(&request, shares_with);
        if let Some(target) = self.view.servers.get_mut(&to) {
            target.reservations.push(reservation.clone());
            target.kept_for = None;
        }
        let proposal = Proposal {
            decision,
            priority: request.priority,
            score: request.unit.used[request.resource],
            reservation: Some(reservation),
        };
        self.propose(proposal, &request.unit.lead);
    }

    fn refuse_reserve(
        &mut self,
        from: NodeId,
        request: &Wish,
        refusal: Refusal,
        candidates: Vec<Candidate>,
        out: &mut Vec<GemCommand>,
    ) {
        let change = Change::moving(request.actor.clone(), from, None, Purpose::Reserve(request.resource));
        let decision = self.context.decision(Some(request.cause.clone()), change, candidates);
        refuse(decision, refusal, out);
    }

    /// Whether the cluster may get another server.
    pub(super) fn may_grow(&self) -> bool {
        self.size() < self.context.settings.servers_max
    }

    /// Current and pending servers of the cluster, not counting those that are leaving.
    pub(super) fn size(&self) -> u32 {
        let staying = self.context.members.iter().filter(|member| {
            let active = member.state == ServerState::Active;
            member.hosts && active && !self.leaving.contains_key(&member.node)
        });
        u32::try_from(staying.count()).unwrap_or(u32::MAX) + self.provisions.unnamed()
    }
}

/// Score of an empty server for a reserved actor.
fn suitability(request: &Wish, server: &Server) -> f64 {
    let capacity = server.capacity(request.resource).unwrap_or(f64::MAX);
    if server.kept_for.as_ref() == Some(&request.actor) {
        f64::MAX
    } else if capacity >= request.unit.used[request.resource] {
        // A server that is too large is better than one that is too small.
        request.unit.used[request.resource] / capacity
    } else {
        capacity / request.unit.used[request.resource] - 1.0
    }
}

//! The global manager: its state, and the round that turns reports into replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, ServerState, Time};

use super::event::{GemCommand, GemEvent};
use super::provision::Provisions;
use super::view::{Server, View};
use super::vote::PendingVote;
use crate::context::Context;
use crate::place::Placer;
use crate::settings::{PROMISE_PERIODS, part};
use crate::{
    Change, Config, ControlMessage, Manager, Member, NewActor, Placement, Proposal, Report, ReportReply, Reservation,
};

/// Maximum number of servers per global manager; larger clusters run several.
const SERVERS_MAX: usize = 1_024;

/// The elasticity manager of a group of servers: those that reported recently. A pure state machine: [`Gem::handle`]
/// takes an event and appends commands. It may fail at any time: the reports carry all state that must survive.
#[derive(Clone, Debug)]
pub struct Gem {
    pub(super) context: Context,
    pub(super) view: View,
    /// Deadline for the decision while reports await their reply.
    decide_by: Option<Time>,
    pub(super) proposals: BTreeMap<NodeId, Vec<Proposal>>,
    /// Servers to dedicate, until the next reply informs them.
    pub(super) dedications: BTreeMap<NodeId, Vec<Reservation>>,
    pub(super) provisions: Provisions,
    pub(super) pending_vote: Option<PendingVote>,
    pub(super) last_size_change: Option<Time>,
    /// Servers that this manager has asked to leave, until the membership confirms it.
    pub(super) leaving: BTreeMap<NodeId, Time>,
    placer: Placer,
}

impl Gem {
    /// A global manager that knows of no server yet.
    pub fn new(config: Config) -> Self {
        Self {
            context: Context::new(Manager::Global(config.node), config),
            view: View::default(),
            decide_by: None,
            proposals: BTreeMap::new(),
            dedications: BTreeMap::new(),
            provisions: Provisions::default(),
            pending_vote: None,
            last_size_change: None,
            leaving: BTreeMap::new(),
            placer: Placer::default(),
        }
    }

    /// Handles an event and appends the resulting commands. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: GemEvent, out: &mut Vec<GemCommand>) {
        self.context.now = now;
        self.expire(out);
        match event {
            GemEvent::Message { from, message } => self.receive(from, message, out),
            GemEvent::Members(members) => self.change_members(members, out),
            GemEvent::Provisioned { request, nodes } => self.end_provision(request, Ok(nodes), out),
            GemEvent::ProvisionFailed { request, reason } => self.end_provision(request, Err(reason), out),
            GemEvent::PolicyChanged(policy) => self.change_policy(policy),
            GemEvent::Tick => {}
        }
    }

    /// When a [`GemEvent::Tick`] is due, if no other event arrives before.
    pub fn next_timer(&self) -> Option<Time> {
        let vote = self.pending_vote.as_ref().map(|vote| vote.until);
        self.decide_by
            .into_iter()
            .chain(vote)
            .chain(self.provisions.next_timer())
            .min()
    }

    /// Places a new actor; `None` if no server accepts actors.
    pub fn place(&mut self, now: Time, new: &NewActor) -> Option<Placement> {
        self.context.now = now;
        self.forget_silent();
        let digests = self.view.digests();
        self.placer.place(&mut self.context, &digests, new)
    }

    fn receive(&mut self, from: NodeId, message: ControlMessage, out: &mut Vec<GemCommand>) {
        match message {
            ControlMessage::Report(report) => self.receive_report(from, *report, out),
            ControlMessage::Adjustment(adjustment) => self.receive_adjustment(from, adjustment, out),
            ControlMessage::Vote(vote) => self.receive_vote(vote, out),
            ControlMessage::Place { request, new } => {
                let placement = self.place(self.context.now, &new);
                out.push(GemCommand::send(from, ControlMessage::Placed { request, placement }));
            }
            // Messages for local managers: a misrouted one is dropped, and its sender times out.
            ControlMessage::ReportReply(_)
            | ControlMessage::Settle(_)
            | ControlMessage::SettleReply(_)
            | ControlMessage::Query(_)
            | ControlMessage::QueryReply(_)
            | ControlMessage::Withdraw { .. }
            | ControlMessage::Placed { .. } => {}
        }
    }

    fn receive_report(&mut self, from: NodeId, report: Report, out: &mut Vec<GemCommand>) {
        let is_new = !self.view.servers.contains_key(&from);
        if report.server.node != from || (is_new && self.view.servers.len() >= SERVERS_MAX) {
            return;
        }
        let mut server = Server::new(report, self.context.now);
        // A server that is still not draining after some periods was not cordoned, and must be asked again.
        let limit = self.context.settings.period * PROMISE_PERIODS;
        self.leaving.retain(|_, asked| self.context.now.since(*asked) <= limit);
        if self.leaving.contains_key(&from) {
            server.report.server.state = ServerState::Draining;
        }
        for reservation in self.dedications.get(&from).into_iter().flatten() {
            if !server.reservations.iter().any(|known| known.actor == reservation.actor) {
                server.reservations.push(reservation.clone());
            }
        }
        server.kept_for = self
            .provisions
            .kept_for(from, self.context.now)
            .filter(|_| server.is_empty() && !server.is_reserved());
        self.provisions.has_reported(from);
        self.placer.forget(from);
        self.view.servers.insert(from, server);
        if self.all_have_reported() {
            self.decide(out);
        } else {
            let until = self.context.deadline(part::COLLECT);
            self.decide_by.get_or_insert(until);
        }
    }

    fn all_have_reported(&self) -> bool {
        self.context
            .members
            .iter()
            .filter(|member| member.hosts)
            .all(|member| self.view.get(member.node).is_some_and(|server| server.is_open))
    }

    /// One round: decides on the current view and replies to every pending report.
    fn decide(&mut self, out: &mut Vec<GemCommand>) {
        self.decide_by = None;
        self.forget_silent();
        out.push(GemCommand::Measured(self.view.capacity(self.context.now)));
        self.plan_drains(out);
        self.plan_reserves(out);
        self.plan_room(out);
        self.plan_balances(out);
        self.plan_surplus(out);
        self.answer(out);
    }

    fn answer(&mut self, out: &mut Vec<GemCommand>) {
        let servers = self.view.digests_bounded();
        let open: Vec<NodeId> = self
            .view
            .servers
            .values()
            .filter(|server| server.is_open)
            .map(Server::node)
            .collect();
        for node in open {
            let server = self
                .view
                .servers
                .get_mut(&node)
                .expect("the node was taken from the view");
            server.is_open = false;
            let reply = ReportReply {
                round: server.report.round,
                proposals: self.proposals.remove(&node).unwrap_or_default(),
                dedicate: self.dedications.remove(&node).unwrap_or_default(),
                added_for_reserve: self.provisions.was_added_for_reserve(node),
                awaiting: awaiting(server, &self.provisions),
                servers: servers.clone(),
            };
            out.push(GemCommand::send(node, ControlMessage::ReportReply(Box::new(reply))));
        }
        self.proposals.clear();
    }

    /// A server that has not reported for one and a half periods reports to another manager, or is gone.
    fn forget_silent(&mut self) {
        let limit = self.context.settings.period * 3 / 2;
        self.view
            .servers
            .retain(|_, server| self.context.now.since(server.at) <= limit);
    }

    fn expire(&mut self, out: &mut Vec<GemCommand>) {
        self.expire_provisions(out);
        self.expire_vote(out);
        if self.decide_by.is_some_and(|until| until <= self.context.now) {
            self.decide(out);
        }
    }

    fn change_members(&mut self, members: Vec<Member>, out: &mut Vec<GemCommand>) {
        let before = std::mem::replace(&mut self.context.members, members);
        for lost in before {
            if !self.context.members.iter().any(|member| member.node == lost.node) {
                self.provisions.forget_dead(lost.node);
            }
        }
        let state = |node: NodeId| {
            let member = self
                .context
                .members
                .iter()
                .find(|member| member.node == node && member.hosts);
            member.map(|member| member.state)
        };
        self.view.servers.retain(|node, _| state(*node).is_some());
        self.leaving.retain(|node, _| state(*node).is_some());
        for (node, server) in &mut self.view.servers {
            if state(*node) == Some(ServerState::Draining) {
                server.report.server.state = ServerState::Draining;
            }
        }
        self.dedications.retain(|node, _| state(*node).is_some());
        if self.decide_by.is_some() && self.all_have_reported() {
            self.decide(out);
        }
    }

    fn change_policy(&mut self, policy: Arc<Policy>) {
        self.context.change_policy(policy);
        // The reports were computed under the old rules.
        self.view = View::default();
        self.decide_by = None;
        self.dedications.clear();
        self.pending_vote = None;
    }

    /// The elasticity period in force.
    pub fn period(&self) -> Duration {
        self.context.settings.period
    }

    /// Adds a move to the reply for the actors' server.
    pub(super) fn propose(&mut self, proposal: Proposal, lead: &ActorId) {
        let Change::Move { from, to: Some(to), .. } = proposal.decision.change else {
            unreachable!("only moves with a target are proposed");
        };
        self.view.plan_move(lead, from, to);
        self.proposals.entry(from).or_default().push(proposal);
    }
}

/// The actors on a server for which a dedicated server is being provisioned.
fn awaiting(server: &Server, provisions: &Provisions) -> Vec<ActorId> {
    let requested = |actor: &&ActorId| server.report.wishes.iter().any(|request| request.actor == **actor);
    provisions.awaiting().filter(requested).cloned().collect()
}

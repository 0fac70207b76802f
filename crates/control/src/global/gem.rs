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
use crate::decision::CANDIDATES_MAX;
use crate::place::{Placed, place, place_blindly};
use crate::random::Random;
use crate::settings::{PROMISE_PERIODS, part};
use crate::{
    Candidate, Cause, Change, Config, ControlMessage, Decision, DecisionId, Manager, Member, NewActor, Outcome,
    Placement, Proposal, Report, ReportReply, Reservation, Settings,
};

/// Maximum number of servers per global manager; larger clusters run several.
const SERVERS_MAX: usize = 1_024;

/// The elasticity manager of a group of servers: those that reported recently. A pure state machine: [`Gem::handle`]
/// takes an event and appends commands. It may fail at any time: the reports carry all state that must survive.
#[derive(Clone, Debug)]
pub struct Gem {
    pub(super) node: NodeId,
    pub(super) policy: Arc<Policy>,
    configured: Settings,
    pub(super) settings: Settings,
    random: Random,
    pub(super) members: Vec<Member>,
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
    placed: Placed,
    decisions: u64,
    pub(super) numbers: u64,
}

impl Gem {
    /// A global manager that knows of no server yet.
    pub fn new(config: Config) -> Self {
        let settings = config.effective_settings();
        Self {
            node: config.node,
            policy: config.policy,
            configured: config.settings,
            settings,
            random: Random::new(config.seed),
            members: Vec::new(),
            view: View::default(),
            decide_by: None,
            proposals: BTreeMap::new(),
            dedications: BTreeMap::new(),
            provisions: Provisions::default(),
            pending_vote: None,
            last_size_change: None,
            leaving: BTreeMap::new(),
            placed: Placed::new(),
            decisions: 0,
            numbers: 0,
        }
    }

    /// Handles an event and appends the resulting commands. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: GemEvent, out: &mut Vec<GemCommand>) {
        self.expire(now, out);
        match event {
            GemEvent::Message { from, message } => self.receive(now, from, message, out),
            GemEvent::Members(members) => self.change_members(now, members, out),
            GemEvent::Provisioned { request, nodes } => self.end_provision(now, request, Ok(nodes), out),
            GemEvent::ProvisionFailed { request, reason } => self.end_provision(now, request, Err(reason), out),
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
        self.forget_silent(now);
        let digests = self.view.digests();
        let placement = place(&self.policy, &digests, &self.placed, &mut self.random, new)
            .or_else(|| place_blindly(&self.members, &digests, &mut self.random))?;
        *self.placed.entry(placement.node).or_default() += 1;
        Some(placement)
    }

    fn receive(&mut self, now: Time, from: NodeId, message: ControlMessage, out: &mut Vec<GemCommand>) {
        match message {
            ControlMessage::Report(report) => self.receive_report(now, from, *report, out),
            ControlMessage::Adjustment(adjustment) => self.receive_adjustment(now, from, adjustment, out),
            ControlMessage::Vote(vote) => self.receive_vote(now, vote, out),
            ControlMessage::Place { request, new } => {
                let placement = self.place(now, &new);
                out.push(GemCommand::Send {
                    to: from,
                    message: ControlMessage::Placed { request, placement },
                });
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

    fn receive_report(&mut self, now: Time, from: NodeId, report: Report, out: &mut Vec<GemCommand>) {
        let is_new = !self.view.servers.contains_key(&from);
        if report.server.node != from || (is_new && self.view.servers.len() >= SERVERS_MAX) {
            return;
        }
        let mut server = Server::new(report, now);
        // A server that is still not draining after some periods was not cordoned, and must be asked again.
        let limit = self.settings.period * PROMISE_PERIODS;
        self.leaving.retain(|_, asked| now.since(*asked) <= limit);
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
            .kept_for(from, now)
            .filter(|_| server.is_empty() && !server.is_reserved());
        self.provisions.has_reported(from);
        self.placed.remove(&from);
        self.view.servers.insert(from, server);
        if self.all_have_reported() {
            self.decide(now, out);
        } else {
            let until = now + self.settings.limit(part::COLLECT);
            self.decide_by.get_or_insert(until);
        }
    }

    fn all_have_reported(&self) -> bool {
        self.members
            .iter()
            .filter(|member| member.hosts)
            .all(|member| self.view.get(member.node).is_some_and(|server| server.is_open))
    }

    /// One round: decides on the current view and replies to every pending report.
    fn decide(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        self.decide_by = None;
        self.forget_silent(now);
        out.push(GemCommand::Measured(self.view.capacity(now)));
        self.plan_drains(now, out);
        self.plan_reserves(now, out);
        self.plan_room(now, out);
        self.plan_balances(now, out);
        self.plan_surplus(now, out);
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
            out.push(GemCommand::Send {
                to: node,
                message: ControlMessage::ReportReply(Box::new(reply)),
            });
        }
        self.proposals.clear();
    }

    /// A server that has not reported for one and a half periods reports to another manager, or is gone.
    fn forget_silent(&mut self, now: Time) {
        let limit = self.settings.period * 3 / 2;
        self.view.servers.retain(|_, server| now.since(server.at) <= limit);
    }

    fn expire(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        self.expire_provisions(now, out);
        self.expire_vote(now, out);
        if self.decide_by.is_some_and(|until| until <= now) {
            self.decide(now, out);
        }
    }

    fn change_members(&mut self, now: Time, members: Vec<Member>, out: &mut Vec<GemCommand>) {
        let before = std::mem::replace(&mut self.members, members);
        for lost in before {
            if !self.members.iter().any(|member| member.node == lost.node) {
                self.provisions.forget_dead(lost.node);
            }
        }
        let state = |node: NodeId| {
            let member = self.members.iter().find(|member| member.node == node && member.hosts);
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
            self.decide(now, out);
        }
    }

    fn change_policy(&mut self, policy: Arc<Policy>) {
        let config = Config {
            node: self.node,
            policy: Arc::clone(&policy),
            settings: self.configured.clone(),
            seed: 0,
        };
        self.settings = config.effective_settings();
        self.policy = policy;
        // The reports were computed under the old rules.
        self.view = View::default();
        self.decide_by = None;
        self.dedications.clear();
        self.pending_vote = None;
    }

    /// The elasticity period in force.
    pub fn period(&self) -> Duration {
        self.settings.period
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A new decision of this manager.
    pub(super) fn decision(
        &mut self,
        now: Time,
        cause: Option<Cause>,
        change: Change,
        mut candidates: Vec<Candidate>,
    ) -> Decision {
        self.decisions += 1;
        candidates.truncate(CANDIDATES_MAX);
        Decision {
            id: DecisionId {
                manager: Manager::Global(self.node),
                sequence: self.decisions,
            },
            at: now,
            cause,
            change,
            candidates,
            outcome: Outcome::Proposed,
        }
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

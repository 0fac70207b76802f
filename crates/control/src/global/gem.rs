//! The global manager itself: its state, and how a round of reports becomes answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, ServerState, Time};

use super::event::{GemCommand, GemEvent};
use super::provision::Provisions;
use super::view::{Server, View};
use super::vote::Asking;
use crate::decision::CANDIDATES_MAX;
use crate::place::{Placed, place, place_blindly};
use crate::random::Random;
use crate::settings::{PROMISE_PERIODS, part};
use crate::{
    Candidate, Cause, Change, Config, ControlMessage, Decision, DecisionId, Manager, Member, NewActor, Outcome,
    Placement, Proposal, Report, ReportReply, Reservation, Settings,
};

/// How many servers one manager looks after at most; more need more managers.
const SERVERS_MAX: usize = 1_024;

/// The elasticity manager of a group of servers: those that reported to it lately. A pure state machine: [`Gem::handle`]
/// takes an event and appends commands. It can be lost at any time: all that must outlive it comes with the reports.
#[derive(Clone, Debug)]
pub struct Gem {
    pub(super) node: NodeId,
    pub(super) policy: Arc<Policy>,
    configured: Settings,
    pub(super) settings: Settings,
    random: Random,
    pub(super) members: Vec<Member>,
    pub(super) view: View,
    /// When to decide at the latest, once a report waits for its answer.
    gather_until: Option<Time>,
    pub(super) proposals: BTreeMap<NodeId, Vec<Proposal>>,
    /// Servers that are to be dedicated, until they have been told.
    pub(super) dedications: BTreeMap<NodeId, Vec<Reservation>>,
    pub(super) provisions: Provisions,
    pub(super) asking: Option<Asking>,
    pub(super) last_size_change: Option<Time>,
    /// Servers that this manager has asked to leave, until the members say so.
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
            gather_until: None,
            proposals: BTreeMap::new(),
            dedications: BTreeMap::new(),
            provisions: Provisions::default(),
            asking: None,
            last_size_change: None,
            leaving: BTreeMap::new(),
            placed: Placed::new(),
            decisions: 0,
            numbers: 0,
        }
    }

    /// Takes an event in and appends what is to be done. `now` never goes back.
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

    /// When a [`GemEvent::Tick`] is due at the latest, if nothing else happens before.
    pub fn next_timer(&self) -> Option<Time> {
        let asking = self.asking.as_ref().map(|asking| asking.until);
        self.gather_until
            .into_iter()
            .chain(asking)
            .chain(self.provisions.next_timer())
            .min()
    }

    /// Where a new actor goes; `None` if there is no server that takes actors.
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
            // These are meant for local managers; one that strays here is dropped, and its sender's limit runs out.
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
        // A server that is still not draining after some periods was not cordoned, and has to be asked again.
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
            let until = now + self.settings.limit(part::GATHER);
            self.gather_until.get_or_insert(until);
        }
    }

    fn all_have_reported(&self) -> bool {
        self.members
            .iter()
            .filter(|member| member.hosts)
            .all(|member| self.view.get(member.node).is_some_and(|server| server.is_open))
    }

    /// One round: decides on all that is known, and answers every report that waits.
    fn decide(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        self.gather_until = None;
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
            let server = self.view.servers.get_mut(&node).expect("it was there a moment ago");
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

    /// A server that has not reported for a period and a half reports to another manager, or is gone.
    fn forget_silent(&mut self, now: Time) {
        let limit = self.settings.period * 3 / 2;
        self.view.servers.retain(|_, server| now.since(server.at) <= limit);
    }

    fn expire(&mut self, now: Time, out: &mut Vec<GemCommand>) {
        self.expire_provisions(now, out);
        self.expire_asking(now, out);
        if self.gather_until.is_some_and(|until| until <= now) {
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
        if self.gather_until.is_some() && self.all_have_reported() {
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
        // The reports rest on the old rules.
        self.view = View::default();
        self.gather_until = None;
        self.dedications.clear();
        self.asking = None;
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

    /// Adds a move to the answer for the server that the actors are on.
    pub(super) fn propose(&mut self, proposal: Proposal, lead: &ActorId) {
        let Change::Move { from, to: Some(to), .. } = proposal.decision.change else {
            unreachable!("only moves with a target are proposed");
        };
        self.view.plan_move(lead, from, to);
        self.proposals.entry(from).or_default().push(proposal);
    }
}

/// The actors on a server that a server of their own is on the way for.
fn awaiting(server: &Server, provisions: &Provisions) -> Vec<ActorId> {
    let wished = |actor: &&ActorId| server.report.wishes.iter().any(|wish| wish.actor == **actor);
    provisions.awaiting().filter(wished).cloned().collect()
}

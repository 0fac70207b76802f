//! The local manager: its state, and the dispatch of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elastin_policy::Policy;
use elastin_types::{ActorId, ActorStats, Caller, NodeId, PerResource, ServerState, Snapshot, Time};

use super::admission::WaitingQuery;
use super::event::{LemCommand, LemEvent};
use super::execution::Moves;
use super::placement::Placing;
use super::promises::Promises;
use super::relations::Relations;
use super::reservations::Reservations;
use super::round::{OpenQuery, Round};
use super::units::Units;
use crate::decision::CANDIDATES_MAX;
use crate::random::Random;
use crate::{
    Candidate, Cause, Change, Config, ControlMessage, Decision, DecisionId, Manager, Member, Outcome, ServerDigest,
    Settings, Streak,
};

/// The elasticity manager of one server. A pure state machine: [`Lem::handle`] takes an event and appends commands.
#[derive(Clone, Debug)]
pub struct Lem {
    pub(super) node: NodeId,
    pub(super) policy: Arc<Policy>,
    pub(super) configured: Settings,
    pub(super) settings: Settings,
    pub(super) random: Random,
    pub(super) members: Vec<Member>,
    /// The last period's statistics.
    pub(super) snapshot: Snapshot,
    /// Index of each actor in the snapshot.
    pub(super) listed: BTreeMap<ActorId, usize>,
    pub(super) relations: Relations,
    pub(super) units: Units,
    pub(super) reservations: Reservations,
    pub(super) promises: Promises,
    pub(super) streaks: BTreeMap<usize, Streak>,
    /// Leads of the units that were too large for any server in the last period.
    pub(super) oversized: BTreeSet<ActorId>,
    /// The servers in the last reply of a global manager.
    pub(super) known: Vec<ServerDigest>,
    /// The global manager that replied last; it places new actors.
    pub(super) last_global: Option<NodeId>,
    pub(super) round: Option<Round>,
    pub(super) queries: BTreeMap<u64, OpenQuery>,
    /// Queries deferred until an actor on its way here is promised a place.
    pub(super) waiting: Vec<WaitingQuery>,
    pub(super) moves: Moves,
    pub(super) placing: Placing,
    /// Actors that have left since the last period's end.
    pub(super) gone: BTreeSet<ActorId>,
    /// Resources used by units that recently moved away, with the time.
    pub(super) departures: Vec<(Time, PerResource<f64>)>,
    /// Servers that refused an actor in this period or the last.
    pub(super) refused: BTreeMap<ActorId, BTreeSet<NodeId>>,
    pub(super) refused_before: BTreeMap<ActorId, BTreeSet<NodeId>>,
    pub(super) added_for_reserve: bool,
    /// Actors for which a dedicated server has been requested, with the request's expiry.
    pub(super) awaiting: BTreeMap<ActorId, Time>,
    pub(super) free_periods: u32,
    /// Number of periods this server has been draining.
    draining_periods: u32,
    decisions: u64,
    pub(super) rounds: u64,
    pub(super) numbers: u64,
}

impl Lem {
    /// A local manager without statistics of its server.
    pub fn new(config: Config) -> Self {
        let settings = config.effective_settings();
        Self {
            node: config.node,
            policy: config.policy,
            configured: config.settings,
            settings,
            random: Random::new(config.seed),
            members: Vec::new(),
            snapshot: Snapshot::default(),
            listed: BTreeMap::new(),
            relations: Relations::default(),
            units: Units::default(),
            reservations: Reservations::default(),
            promises: Promises::default(),
            streaks: BTreeMap::new(),
            oversized: BTreeSet::new(),
            known: Vec::new(),
            last_global: None,
            round: None,
            queries: BTreeMap::new(),
            waiting: Vec::new(),
            moves: Moves::default(),
            placing: Placing::default(),
            gone: BTreeSet::new(),
            departures: Vec::new(),
            refused: BTreeMap::new(),
            refused_before: BTreeMap::new(),
            added_for_reserve: false,
            awaiting: BTreeMap::new(),
            free_periods: 0,
            draining_periods: 0,
            decisions: 0,
            rounds: 0,
            numbers: 0,
        }
    }

    /// Handles an event and appends the resulting commands. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: LemEvent, out: &mut Vec<LemCommand>) {
        self.expire(now, out);
        match event {
            LemEvent::Period(snapshot) => self.end_period(now, snapshot, out),
            LemEvent::Message { from, message } => self.receive(now, from, message, out),
            LemEvent::MoveEnded { id, result } => self.end_move(now, id, result, out),
            LemEvent::Members(members) => self.change_members(members),
            LemEvent::PolicyChanged(policy) => self.change_policy(policy),
            LemEvent::Place { request, new } => self.ask_place(now, request, new, out),
            LemEvent::Tick => {}
        }
    }

    /// When a [`LemEvent::Tick`] is due, if no other event arrives before.
    pub fn next_timer(&self) -> Option<Time> {
        let round = self.round.as_ref().map(|round| round.until);
        let queries = self.queries.values().map(|open| open.until);
        let waiting = self.waiting.iter().map(|query| query.until);
        round
            .into_iter()
            .chain(queries)
            .chain(waiting)
            .chain(self.placing.next_timer())
            .min()
    }

    /// Whether the next snapshot must list all actors of the server, not only those that the policy is interested in.
    /// That is the case while the server is drained, or dedicated to some actors so that the others have to leave.
    pub fn wants_all_actors(&self) -> bool {
        self.state() == ServerState::Draining || !self.reservations.is_empty()
    }

    /// The elasticity period in force, the interval of [`LemEvent::Period`].
    pub fn period(&self) -> Duration {
        self.settings.period
    }

    fn receive(&mut self, now: Time, from: NodeId, message: ControlMessage, out: &mut Vec<LemCommand>) {
        match message {
            ControlMessage::ReportReply(reply) => self.receive_reply(now, from, *reply, out),
            ControlMessage::Settle(settle) => self.receive_settle(now, from, *settle, out),
            ControlMessage::SettleReply(reply) => self.receive_settle_reply(now, reply, out),
            ControlMessage::Query(query) => self.receive_query(now, from, *query, out),
            ControlMessage::QueryReply(reply) => self.receive_query_reply(now, from, reply, out),
            ControlMessage::Withdraw { query } => self.receive_withdraw(from, query),
            ControlMessage::Placed { request, placement } => self.receive_placed(request, placement, out),
            // Messages for global managers: a misrouted one is dropped, and its sender times out.
            ControlMessage::Report(_)
            | ControlMessage::Adjustment(_)
            | ControlMessage::Vote(_)
            | ControlMessage::Place { .. } => {}
        }
    }

    fn expire(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        self.expire_queries(now, out);
        self.expire_waiting(now, out);
        self.expire_placing(now, out);
        self.expire_round(now, out);
    }

    fn change_members(&mut self, members: Vec<Member>) {
        self.members = members;
        let is_there = |node: NodeId| self.members.iter().any(|member| member.node == node);
        self.known.retain(|digest| is_there(digest.server.node));
        self.last_global = self.last_global.filter(|node| is_there(*node));
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
        // Relations refer to the old rules by index, so they are dropped. A reservation ends, too: a new rule that
        // still wants it fires again with the actor already on its own server.
        self.relations = Relations::default();
        self.reservations = Reservations::default();
        self.streaks.clear();
        self.round = None;
    }

    /// Whether this server accepts actors.
    pub(super) fn state(&self) -> ServerState {
        let announced = self.members.iter().find(|member| member.node == self.node);
        let reported = self.snapshot.servers.iter().find(|server| server.node == self.node);
        let draining = announced.is_some_and(|member| member.state == ServerState::Draining)
            || reported.is_some_and(|server| server.state == ServerState::Draining);
        if draining {
            ServerState::Draining
        } else {
            ServerState::Active
        }
    }

    /// Leaves once the server has been empty for a whole period in which it accepted no actors. Actors sent before all
    /// nodes saw the drain have arrived by then.
    pub(super) fn leave_if_empty(&mut self, out: &mut Vec<LemCommand>) {
        if self.state() == ServerState::Active {
            self.draining_periods = 0;
            return;
        }
        self.draining_periods += 1;
        let empty = self.own_server().is_some_and(|server| server.actors == 0);
        if empty && self.promises.is_empty() && self.draining_periods > 1 {
            out.push(LemCommand::Leave);
        }
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
                manager: Manager::Local(self.node),
                sequence: self.decisions,
            },
            at: now,
            cause,
            change,
            candidates,
            outcome: Outcome::Proposed,
        }
    }

    /// Statistics of an actor on this server in the last period.
    pub(super) fn stats(&self, actor: &ActorId) -> Option<&ActorStats> {
        self.listed.get(actor).map(|index| &self.snapshot.actors[*index])
    }

    /// Calls between two actors in the last period, as far as this server recorded them.
    pub(super) fn calls_between(&self, one: &ActorId, other: &ActorId) -> u64 {
        // Calls between two local actors appear in both actors' tables and must count once.
        let seen_by = |actor: &ActorId, peer: &ActorId| self.stats(actor).map_or(0, |stats| calls_with(stats, peer));
        seen_by(one, other).max(seen_by(other, one))
    }
}

/// Calls between the actor and this peer, in both directions.
fn calls_with(stats: &ActorStats, peer: &ActorId) -> u64 {
    let incoming = stats.calls_in.iter().filter_map(|call| match &call.caller {
        Caller::Actor(caller) if caller == peer => Some(call.count),
        _ => None,
    });
    let outgoing = stats.calls_out.iter().filter(|call| call.callee == *peer);
    incoming.sum::<u64>() + outgoing.map(|call| call.count).sum::<u64>()
}

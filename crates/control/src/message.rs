//! What elasticity managers say to each other. Paper 000, section 4.2, names REPORT, RREPLY, QUERY, QREPLY and the
//! adjustment; SETTLE is how two local managers agree on who moves for a `colocate`.
//!
//! ```text
//!  LEM ── Report ──► GEM ── ReportReply (also when empty) ──► LEM
//!  LEM ── Settle ──► host of the other actor ── SettleReply ──► LEM
//!  LEM ── Query ───► target ── QueryReply ──► LEM ── Withdraw, if the move fails ──► target
//!  GEM ── Adjustment ──► other GEMs ── Vote ──► GEM
//! ```
//! Every question has a time limit, after which the asker goes on without the answer; a lost message costs a period, never
//! more. Every promise expires.

use elastin_types::{ActorId, ActorType, NodeId, PerResource, Resource, ServerStats};
use serde::{Deserialize, Serialize};

use crate::{Cause, Decision, Placement, Refusal};

/// A message between two managers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControlMessage {
    /// A local manager tells a global one about its server.
    Report(Box<Report>),
    /// The answer, with what the global manager wants.
    ReportReply(Box<ReportReply>),
    /// A local manager asks the host of the other end of a `colocate` who moves.
    Settle(Box<Settle>),
    /// The answer.
    SettleReply(SettleReply),
    /// A local manager asks a server to take actors.
    Query(Box<Query>),
    /// The answer.
    QueryReply(QueryReply),
    /// The actors that a server was asked to take do not come.
    Withdraw {
        /// The number of the query.
        query: u64,
    },
    /// A global manager asks another whether it agrees to change the number of servers.
    Adjustment(Adjustment),
    /// The answer.
    Vote(Vote),
    /// A node asks a global manager where a new actor goes.
    Place {
        /// Counts the askings of that node.
        request: u64,
        /// The new actor.
        new: NewActor,
    },
    /// The answer.
    Placed {
        /// The number of the asking.
        request: u64,
        /// Where it goes; `None` if the manager knows no server that takes actors.
        placement: Option<Placement>,
    },
}

impl ControlMessage {
    /// Whether the global manager of the receiving node gets it; otherwise its local one does.
    pub fn is_for_global(&self) -> bool {
        match self {
            ControlMessage::Report(_)
            | ControlMessage::Adjustment(_)
            | ControlMessage::Vote(_)
            | ControlMessage::Place { .. } => true,
            ControlMessage::ReportReply(_)
            | ControlMessage::Settle(_)
            | ControlMessage::SettleReply(_)
            | ControlMessage::Query(_)
            | ControlMessage::QueryReply(_)
            | ControlMessage::Withdraw { .. }
            | ControlMessage::Placed { .. } => false,
        }
    }
}

/// An actor that is about to be activated for the first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewActor {
    /// The actor.
    pub actor: ActorId,
    /// The actor that calls it, if an actor does.
    pub caller: Option<ActorId>,
    /// The node that the call comes from, if actors live there.
    pub caller_node: Option<NodeId>,
}

/// What happened on a server in one period, as far as a global manager needs to know. Bounded: the units that use most are
/// listed, the others summed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Counts the rounds of the reporting manager; the answer repeats it.
    pub round: u64,
    /// The server.
    pub server: ServerStats,
    /// What the server has promised to actors that do not count in full yet.
    pub promised: PerResource<f64>,
    /// Whether so much moved here or away during the period that the use is not yet what it will be.
    pub unsettled: bool,
    /// The reserved actors that the server is dedicated to; more than one share it.
    pub reservations: Vec<Reservation>,
    /// The units that use most.
    pub units: Vec<Unit>,
    /// The actors that are in no listed unit.
    pub rest: Rest,
    /// How many of the server's actors are pinned.
    pub pinned: u32,
    /// The types on this server that a rule keeps apart from others.
    pub separated_kinds: Vec<ActorType>,
    /// The `reserve` rules that fired.
    pub wishes: Vec<Wish>,
    /// The rules that fired here and balance besides doing something with actors; each once.
    pub balances: Vec<Cause>,
    /// For how many periods in a row the server has been beyond the bounds of `balance` rules.
    pub streaks: Vec<Streak>,
    /// The server was added for a reservation.
    pub added_for_reserve: bool,
    /// For how many periods in a row it has been dedicated to nobody.
    pub free_periods: u32,
}

/// Actors that relations hold together, so that they move as one; most are one actor alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The lowest of their ids, which names the unit.
    pub lead: ActorId,
    /// All of them, the lead included. A report names only the first of a large unit, the reserved ones among them.
    pub actors: Vec<ActorId>,
    /// How many they are.
    pub count: u64,
    /// What they use together; of CPU time, what they would use if the server had enough.
    pub used: PerResource<f64>,
    /// Why the unit can't move at present.
    pub held: Option<Held>,
    /// Actors that rules keep apart from one of the unit.
    pub apart_from: Vec<ActorId>,
    /// Servers that refused the unit in the last period.
    pub refused_by: Vec<NodeId>,
}

impl Unit {
    /// Whether one of its actors is of one of these types; an empty list stands for all types.
    pub(crate) fn has_kind(&self, kinds: &[ActorType]) -> bool {
        kinds.is_empty() || self.actors.iter().any(|actor| kinds.contains(&actor.kind))
    }
}

/// Why a unit can't move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Held {
    /// A rule pins this actor of it, with this priority.
    Pinned(ActorId, i32),
    /// The greater part of the unit, with this actor, came by a move less than a period ago, or is on the move.
    Recent(ActorId),
}

/// The actors that a report does not list one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// How many.
    pub actors: u64,
    /// What they use together, as far as it is known.
    pub used: PerResource<f64>,
}

/// A `reserve` that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// The firing that asked for it.
    pub cause: Cause,
    /// The actor.
    pub actor: ActorId,
    /// The resource that it needs.
    pub resource: Resource,
    /// What the actor uses of it.
    pub used: f64,
    /// The priority.
    pub priority: i32,
    /// The unit that moves along with it.
    pub unit: Unit,
    /// A global manager, perhaps another one, has lately asked for a server for it.
    pub awaiting: bool,
}

/// A reservation in force. It is kept by the server that the actor is on, and moves with it: global managers come and go
/// without losing it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The reserved actor.
    pub actor: ActorId,
    /// The resource that it needs.
    pub resource: Resource,
    /// The firing that reserved it.
    pub cause: Cause,
    /// What the actor used of the resource then.
    pub used: f64,
    /// The reserved actor that it shares its server with, because there can't be more servers.
    pub shares_with: Option<ActorId>,
    /// The actor is there; otherwise it is on its way, or the server is being emptied for it.
    pub arrived: bool,
}

/// How long a server has been beyond the bounds of a `balance` rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    /// The rule, by its index in the policy.
    pub rule: usize,
    /// For how many periods in a row above the upper bound.
    pub above: u32,
    /// For how many periods in a row below the lower one.
    pub below: u32,
}

/// What a global manager wants of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportReply {
    /// The round of the report that this answers.
    pub round: u64,
    /// The moves that it wants of actors on this server.
    pub proposals: Vec<Proposal>,
    /// The reserved actors that the server is dedicated to from now on, besides those that it reported.
    pub dedicate: Vec<Reservation>,
    /// The server was added for a reservation.
    pub added_for_reserve: bool,
    /// The actors of this server that a server of their own has been asked for.
    pub awaiting: Vec<ActorId>,
    /// The servers with most room that the manager knows of.
    pub servers: Vec<ServerDigest>,
}

/// A move that a manager wants, local or global, until one arbiter has chosen among all that want to move an actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The decision; its change is a move.
    pub decision: Decision,
    /// The priority of the rule that asked for it.
    pub priority: i32,
    /// How much it is worth; among equal priorities the highest is carried out first.
    pub score: f64,
    /// The reservation that moves along.
    pub reservation: Option<Reservation>,
}

/// What is known of another server when an actor needs a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerDigest {
    /// The server, with what it has promised counted as used.
    pub server: ServerStats,
    /// The actors that it is dedicated to.
    pub reserved: Vec<ActorId>,
    /// How many of its actors are pinned.
    pub pinned: u32,
    /// The types on it that a rule keeps apart from others.
    pub separated_kinds: Vec<ActorType>,
}

/// Who moves for a `colocate`?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settle {
    /// The asker's number for this asking.
    pub settle: u64,
    /// The firing that asks for it.
    pub cause: Cause,
    /// The priority of the rule.
    pub priority: i32,
    /// The asker's end.
    pub mine: End,
    /// The other end, which the asked server hosts.
    pub other: ActorId,
    /// How often they called each other in the period.
    pub calls: u64,
}

/// One end of a `colocate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The actor.
    pub actor: ActorId,
    /// The server where it will be after this period.
    pub node: NodeId,
    /// What its unit uses of the critical resource.
    pub used: f64,
    /// The highest priority with which it is pinned.
    pub pinned: Option<i32>,
    /// It has a server of its own, or is about to get one.
    pub reserved: bool,
    /// It came less than a period ago, or is on the move.
    pub recent: bool,
}

/// The answer to a [`Settle`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettleReply {
    /// The asker's number.
    pub settle: u64,
    /// Who moves.
    pub answer: SettleAnswer,
}

/// Who moves for a `colocate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SettleAnswer {
    /// The asker's end stays: the answerer moves its own.
    Stay,
    /// The asker's end shall come to this server, where the other one is or will be.
    Come(NodeId),
    /// Neither moves.
    Refuse(Refusal),
}

/// Will you take these actors?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// The asker's number for this query.
    pub query: u64,
    /// The actors.
    pub actors: Vec<ActorId>,
    /// What they use together.
    pub used: PerResource<f64>,
    /// The priority of the rule that moves them.
    pub priority: i32,
    /// They have to leave their server: rules do not count, only whether there is memory for them.
    pub must_leave: bool,
    /// The actor that they go to because a rule colocates them.
    pub beside: Option<ActorId>,
    /// Actors that rules keep apart from one of them.
    pub apart_from: Vec<ActorId>,
    /// The reservation that comes along.
    pub reservation: Option<Reservation>,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReply {
    /// The asker's number.
    pub query: u64,
    /// Why not; `None` if the server takes them and holds the resources for them, for a while.
    pub refused: Option<Refusal>,
}

/// Shall the number of servers change?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    /// The asker's number for this asking.
    pub asking: u64,
    /// The `balance` rule that asks for it, by its index in the policy.
    pub rule: usize,
    /// In which direction.
    pub direction: Direction,
}

/// In which direction the number of servers changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// More servers.
    Grow,
    /// Fewer servers.
    Shrink,
}

/// The answer to an [`Adjustment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The asker's number.
    pub asking: u64,
    /// Whether the answerer sees the same.
    pub agrees: bool,
}

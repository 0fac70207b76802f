//! Messages between elasticity managers. REPORT, RREPLY, QUERY, QREPLY and the adjustment follow PLASMA (EuroSys 2020),
//! section 4.2. With SETTLE, two local managers agree on which actor moves for a `colocate`.
//!
//! ```text
//!  LEM ── Report ──► GEM ── ReportReply (also when empty) ──► LEM
//!  LEM ── Settle ──► host of the other actor ── SettleReply ──► LEM
//!  LEM ── Query ───► target ── QueryReply ──► LEM ── Withdraw, if the move fails ──► target
//!  GEM ── Adjustment ──► other GEMs ── Vote ──► GEM
//! ```
//! Every request has a timeout, after which the requester proceeds without the reply. A lost message therefore costs at
//! most one period. Every promise expires.

use std::cmp::Ordering;

use elastin_types::{ActorId, ActorType, NodeId, PerResource, Resource, ServerStats};
use serde::{Deserialize, Serialize};

use crate::{Cause, Decision, Placement, Refusal};

/// A message between two managers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControlMessage {
    /// A local manager reports its server's load to a global manager.
    Report(Box<Report>),
    /// Reply to a report, with the global manager's proposals.
    ReportReply(Box<ReportReply>),
    /// A local manager asks the host of the other end of a `colocate` which end moves.
    Settle(Box<Settle>),
    /// Reply to [`ControlMessage::Settle`].
    SettleReply(SettleReply),
    /// A local manager asks a server to admit actors.
    Query(Box<Query>),
    /// Reply to [`ControlMessage::Query`].
    QueryReply(QueryReply),
    /// Cancels an admitted query: the actors will not arrive.
    Withdraw {
        /// The query's number.
        query: u64,
    },
    /// A global manager asks another whether it agrees to change the number of servers.
    Adjustment(Adjustment),
    /// Reply to [`ControlMessage::Adjustment`].
    Vote(Vote),
    /// A node asks a global manager to place a new actor.
    Place {
        /// Request number, counted per node.
        request: u64,
        /// The new actor.
        new: NewActor,
    },
    /// Reply to [`ControlMessage::Place`].
    Placed {
        /// The number of the request.
        request: u64,
        /// The chosen server; `None` if the manager knows no server that accepts actors.
        placement: Option<Placement>,
    },
}

impl ControlMessage {
    /// Whether the message is for the receiving node's global manager rather than its local one.
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

/// An actor about to be activated for the first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewActor {
    /// The actor.
    pub actor: ActorId,
    /// The calling actor, if the caller is one.
    pub caller: Option<ActorId>,
    /// The caller's node, if it hosts actors.
    pub caller_node: Option<NodeId>,
}

/// One period of a server, summarised for a global manager. Bounded: only the heaviest units are listed, the rest are
/// summed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Round of the reporting manager; the reply echoes it.
    pub round: u64,
    /// The server's statistics.
    pub server: ServerStats,
    /// Resources promised to actors that are not fully measured yet.
    pub promised: PerResource<f64>,
    /// Whether moves during the period were large enough to make the measured use unreliable.
    pub unsettled: bool,
    /// The reservations that the server is dedicated to. Several mean that the actors share it.
    pub reservations: Vec<Reservation>,
    /// The units with the highest use.
    pub units: Vec<Unit>,
    /// The actors in no listed unit.
    pub rest: Rest,
    /// Number of pinned actors on the server.
    pub pinned: u32,
    /// The actor types on this server that a rule separates from others.
    pub separated_kinds: Vec<ActorType>,
    /// The `reserve` rules that fired.
    pub wishes: Vec<Wish>,
    /// Firings of rules that balance in addition to actions on actors, one per rule.
    pub balances: Vec<Cause>,
    /// Consecutive periods beyond the bounds of `balance` rules.
    pub streaks: Vec<Streak>,
    /// Whether the server was added for a reservation.
    pub added_for_reserve: bool,
    /// Consecutive periods in which the server was not dedicated to an actor.
    pub free_periods: u32,
}

/// Actors that relations keep together and that move as one; usually a single actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The lowest actor id of the unit, which identifies it.
    pub lead: ActorId,
    /// All actors, lead included. A report truncates the list of a large unit, keeping the reserved actors.
    pub actors: Vec<ActorId>,
    /// Number of actors.
    pub count: u64,
    /// Resources used by all of them; for CPU, their demand on an unsaturated server.
    pub used: PerResource<f64>,
    /// Why the unit cannot move at present.
    pub held: Option<Held>,
    /// Actors that rules separate from one of the unit.
    pub apart_from: Vec<ActorId>,
    /// Servers that refused the unit in the last period.
    pub refused_by: Vec<NodeId>,
}

impl Unit {
    /// Whether one of its actors has one of these types; an empty list matches all types.
    pub(crate) fn has_kind(&self, kinds: &[ActorType]) -> bool {
        kinds.is_empty() || self.actors.iter().any(|actor| kinds.contains(&actor.kind))
    }
}

/// Why a unit cannot move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Held {
    /// A rule with this priority pins this actor of the unit.
    Pinned(ActorId, i32),
    /// Most of the unit, including this actor, moved less than a period ago or is moving now.
    Recent(ActorId),
}

impl Held {
    /// Whether this keeps the unit from moving for a proposal of this priority.
    pub(crate) fn holds_against(&self, priority: i32) -> bool {
        match self {
            Held::Pinned(_, pinned) => *pinned >= priority,
            Held::Recent(_) => true,
        }
    }
}

/// The actors that a report does not list individually.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// Number of actors.
    pub actors: u64,
    /// Resources used by all of them, as far as known.
    pub used: PerResource<f64>,
}

/// A `reserve` that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// The firing that requested it.
    pub cause: Cause,
    /// The actor to reserve a server for.
    pub actor: ActorId,
    /// The resource that the actor needs.
    pub resource: Resource,
    /// The actor's use of the resource.
    pub used: f64,
    /// The rule's priority.
    pub priority: i32,
    /// The actor's unit, which moves with it.
    pub unit: Unit,
    /// Whether a global manager, possibly another one, has recently requested a server for the actor.
    pub awaiting: bool,
}

impl Wish {
    /// The highest priority first, then the earlier rule, then the greatest use.
    pub(crate) fn most_urgent_first(&self, other: &Wish) -> Ordering {
        let used = |request: &Wish| request.unit.used[request.resource];
        (other.priority.cmp(&self.priority))
            .then(self.cause.rule.cmp(&other.cause.rule))
            .then(used(other).total_cmp(&used(self)))
            .then_with(|| self.actor.cmp(&other.actor))
    }
}

/// A reservation in force. The actor's server keeps it and it moves with the actor, so it survives the loss of global
/// managers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The reserved actor.
    pub actor: ActorId,
    /// The resource that the actor needs.
    pub resource: Resource,
    /// The firing that reserved it.
    pub cause: Cause,
    /// The actor's use of the resource at the time of reservation.
    pub used: f64,
    /// The reserved actor that it shares a server with, because the cluster is at its maximum size.
    pub shares_with: Option<ActorId>,
    /// Whether the actor is on the server. Otherwise it is in transit, or the server is being emptied for it.
    pub arrived: bool,
}

/// Consecutive periods of a server beyond the bounds of a `balance` rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    /// The rule, by its index in the policy.
    pub rule: usize,
    /// Consecutive periods above the upper bound.
    pub above: u32,
    /// Consecutive periods below the lower bound.
    pub below: u32,
}

/// Proposals and assignments from a global manager for one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportReply {
    /// The round of the report.
    pub round: u64,
    /// Proposed moves of actors on this server.
    pub proposals: Vec<Proposal>,
    /// Reservations that the server is newly dedicated to, in addition to the reported ones.
    pub dedicate: Vec<Reservation>,
    /// Whether the server was added for a reservation.
    pub added_for_reserve: bool,
    /// Actors of this server for which a dedicated server has been requested.
    pub awaiting: Vec<ActorId>,
    /// The known servers with most room.
    pub servers: Vec<ServerDigest>,
}

/// A move proposed by a local or global manager. One arbiter chooses among all proposals for an actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The decision; its change is a move.
    pub decision: Decision,
    /// The priority of the proposing rule.
    pub priority: i32,
    /// The move's value; among equal priorities the highest score is executed first.
    pub score: f64,
    /// The reservation that moves with the actor.
    pub reservation: Option<Reservation>,
}

/// Summary of another server, used to place actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerDigest {
    /// The server's statistics, with promised resources counted as used.
    pub server: ServerStats,
    /// The actors that the server is dedicated to.
    pub reserved: Vec<ActorId>,
    /// Number of pinned actors on the server.
    pub pinned: u32,
    /// The actor types on it that a rule separates from others.
    pub separated_kinds: Vec<ActorType>,
}

/// Asks the host of the other actor which of the two moves for a `colocate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settle {
    /// The requester's number for this exchange.
    pub settle: u64,
    /// The rule firing behind the request.
    pub cause: Cause,
    /// The priority of the rule.
    pub priority: i32,
    /// The requester's end.
    pub mine: End,
    /// The other end, hosted by the receiver.
    pub other: ActorId,
    /// Calls between the two in the period.
    pub calls: u64,
}

/// One end of a `colocate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The actor.
    pub actor: ActorId,
    /// The actor's server after this period.
    pub node: NodeId,
    /// Its unit's use of the critical resource.
    pub used: f64,
    /// The highest priority of a rule that pins it.
    pub pinned: Option<i32>,
    /// Whether it has a dedicated server or is about to get one.
    pub reserved: bool,
    /// Whether it arrived less than a period ago or is moving.
    pub recent: bool,
}

/// Reply to a [`Settle`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettleReply {
    /// The requester's number.
    pub settle: u64,
    /// Which end moves.
    pub answer: SettleAnswer,
}

/// Decides which end moves for a `colocate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SettleAnswer {
    /// The requester's end stays; the replying side moves its own.
    Stay,
    /// The requester's end moves to this server, the current or future server of the other end.
    Come(NodeId),
    /// Neither moves.
    Refuse(Refusal),
}

/// Asks a server to admit actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// The requester's number for this query.
    pub query: u64,
    /// The actors to admit.
    pub actors: Vec<ActorId>,
    /// Resources used by all of them.
    pub used: PerResource<f64>,
    /// The priority of the rule that moves them.
    pub priority: i32,
    /// The actors must leave their server: rules are ignored and only memory is checked.
    pub must_leave: bool,
    /// The actor on the target that a rule colocates them with.
    pub beside: Option<ActorId>,
    /// Actors that rules separate from one of them.
    pub apart_from: Vec<ActorId>,
    /// The reservation that moves along.
    pub reservation: Option<Reservation>,
}

/// Reply to a [`Query`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReply {
    /// The requester's number.
    pub query: u64,
    /// Why the server refuses; `None` if it admits the actors and holds resources for them until the promise expires.
    pub refused: Option<Refusal>,
}

/// Asks another global manager to agree to a change of the number of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    /// The requester's number for this vote.
    pub asking: u64,
    /// The `balance` rule behind the request, by its index in the policy.
    pub rule: usize,
    /// Whether to grow or shrink.
    pub direction: Direction,
}

/// Direction of a size change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// More servers.
    Grow,
    /// Fewer servers.
    Shrink,
}

/// Reply to an [`Adjustment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The requester's number.
    pub asking: u64,
    /// Whether the voter sees the same condition.
    pub agrees: bool,
}

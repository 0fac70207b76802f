//! The record of a decision: the change, the rule and values behind it, and its outcome.

use std::cmp::Ordering;

use elastin_policy::{Bound, Fired, Observed, Policy};
use elastin_types::{ActorId, NodeId, Resource, Time};
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// Number of candidates that a record keeps, best first: enough to see why one won, small enough to keep every record.
pub(crate) const CANDIDATES_MAX: usize = 8;

/// An elasticity manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Manager {
    /// The local manager (LEM) of this server.
    Local(NodeId),
    /// The global manager (GEM) on this node.
    Global(NodeId),
}

/// Identifies one decision. Unique in the cluster for all time, because node ids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DecisionId {
    /// The manager that decided.
    pub manager: Manager,
    /// Sequence number among that manager's decisions.
    pub sequence: u64,
}

/// One decision. It is recorded when proposed and again whenever its outcome changes; the latest record of an id is the
/// valid one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The decision's id.
    pub id: DecisionId,
    /// Time of the proposal, on the deciding manager's clock.
    pub at: Time,
    /// The rule firing behind the decision; `None` if no rule asked for it, as in a drain.
    pub cause: Option<Cause>,
    /// The change to make.
    pub change: Change,
    /// The servers considered, best first.
    pub candidates: Vec<Candidate>,
    /// The current outcome.
    pub outcome: Outcome,
}

/// The rule firing that a decision is based on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// The rule, by its index in the policy.
    pub rule: usize,
    /// The rule's name, if it has one.
    pub name: Option<String>,
    /// The source text of the rule.
    pub text: String,
    /// The actors bound to the rule's variables.
    pub binding: Vec<Bound>,
    /// The server that `server` was bound to.
    pub server: Option<NodeId>,
    /// The rule's comparisons, with the measured values.
    pub values: Vec<Observed>,
}

impl Cause {
    /// The cause for a firing of a rule of this policy.
    pub(crate) fn new(policy: &Policy, fired: &Fired) -> Self {
        let rule = &policy.rules()[fired.rule];
        Self {
            rule: fired.rule,
            name: rule.name.clone(),
            text: rule.text.clone(),
            binding: fired.binding.clone(),
            server: fired.server,
            values: fired.values.clone(),
        }
    }

    /// The rule's display name: its name, else its position in the policy, counted from one.
    pub fn rule_name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => (self.rule + 1).to_string(),
        }
    }
}

/// The change that a decision makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A group of actors moves as one.
    Move {
        /// The actor that the decision is about.
        actor: ActorId,
        /// The actors that move along because relations keep them together.
        with: Vec<ActorId>,
        /// The source server.
        from: NodeId,
        /// The target server; `None` if none was found.
        to: Option<NodeId>,
        /// The purpose of the move.
        purpose: Purpose,
    },
    /// A server accepts only this actor and the actors that rules colocate with it.
    Dedicate {
        /// The reserved actor.
        actor: ActorId,
        /// The server.
        node: NodeId,
        /// The resource that the actor needs.
        resource: Resource,
        /// Another reserved actor on the same server, because the cluster is at its maximum size.
        shared_with: Option<ActorId>,
    },
    /// A server is no longer dedicated to an actor.
    Release {
        /// The actor that held the reservation.
        actor: ActorId,
        /// The server.
        node: NodeId,
        /// Why the reservation ended.
        reason: ReleaseReason,
    },
    /// The two actors are no longer kept together, because no server has room for their whole group.
    Part {
        /// One actor.
        first: ActorId,
        /// The other actor.
        second: ActorId,
    },
    /// The cluster grows.
    AddServers {
        /// Number of servers to add.
        count: u32,
        /// The actor that needs a dedicated server, if that is the reason.
        reserved: Option<ActorId>,
    },
    /// A server is drained and leaves.
    RemoveServer {
        /// The server.
        node: NodeId,
    },
}

impl Change {
    /// The move of an actor's unit. Its other actors are added when the move is admitted.
    pub(crate) fn moving(actor: ActorId, from: NodeId, to: Option<NodeId>, purpose: Purpose) -> Self {
        Change::Move {
            actor,
            with: Vec::new(),
            from,
            to,
            purpose,
        }
    }
}

/// Why a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// The reservation's reason has been gone for several periods.
    Over,
    /// The actor has left the server, for example because an operator moved it.
    Left,
    /// The actor never arrived.
    NeverCame,
}

/// The purpose of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Purpose {
    /// To a dedicated server.
    Reserve(Resource),
    /// Away from a server dedicated to another actor.
    MakeRoom {
        /// The actor that the server is reserved for.
        reserved: ActorId,
    },
    /// To spread the load of a resource.
    Balance(Resource),
    /// Away from the server of this actor.
    Separate(ActorId),
    /// To the server of this actor.
    Colocate(ActorId),
    /// Away from a server that is being drained.
    Drain,
}

/// A server considered for a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The server.
    pub node: NodeId,
    /// Score, higher is better. Scores for different purposes are not comparable.
    pub score: f64,
    /// Why the server was not chosen; `None` for the chosen one.
    pub refused: Option<Refusal>,
}

/// Sorts candidates, best first: servers that can take the actors, then by score. None but the first is chosen.
pub(crate) fn rank(candidates: &mut [Candidate]) {
    candidates.sort_by(by_quality);
    for worse in candidates.iter_mut().skip(1) {
        worse.refused.get_or_insert(Refusal::Worse);
    }
}

pub(crate) fn by_quality(one: &Candidate, other: &Candidate) -> Ordering {
    (one.refused.is_some().cmp(&other.refused.is_some()))
        .then(other.score.total_cmp(&one.score))
        .then(one.node.cmp(&other.node))
}

/// The best of ranked candidates, if it can take the actors.
pub(crate) fn best(candidates: &[Candidate]) -> Option<NodeId> {
    let first = candidates.first()?;
    first.refused.is_none().then_some(first.node)
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Proposed, not yet started.
    Proposed,
    /// Refused; nothing is changed.
    Refused(Refusal),
    /// In progress.
    Started,
    /// Completed.
    Done,
    /// Started but did not succeed.
    Failed(String),
}

impl Outcome {
    /// Whether the outcome can no longer change.
    pub fn is_final(&self) -> bool {
        matches!(self, Outcome::Refused(_) | Outcome::Done | Outcome::Failed(_))
    }
}

impl Decision {
    /// The actor that the decision is about, if any.
    pub fn actor(&self) -> Option<&ActorId> {
        match &self.change {
            Change::Move { actor, .. } | Change::Dedicate { actor, .. } | Change::Release { actor, .. } => Some(actor),
            Change::Part { first, .. } => Some(first),
            Change::AddServers { reserved, .. } => reserved.as_ref(),
            Change::RemoveServer { .. } => None,
        }
    }
}

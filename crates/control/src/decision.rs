//! The record of a decision: what was done or not done, by which rule, on what values, and what became of it.

use elastin_policy::{Bound, Fired, Observed};
use elastin_types::{ActorId, NodeId, Resource, Time};
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// How many candidates a record keeps, the best first: enough to see why one won, small enough to keep every record.
pub(crate) const CANDIDATES_MAX: usize = 8;

/// An elasticity manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Manager {
    /// The local manager (LEM) of this server.
    Local(NodeId),
    /// The global manager (GEM) on this node.
    Global(NodeId),
}

/// One decision: unique over the whole cluster for all time, because a node id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DecisionId {
    /// Who decided.
    pub manager: Manager,
    /// Counts that manager's decisions.
    pub sequence: u64,
}

/// One decision. It is recorded when it is proposed and again whenever its outcome changes: the record with the same id
/// that came last is the valid one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Which decision.
    pub id: DecisionId,
    /// When it was proposed, on the clock of the manager that did.
    pub at: Time,
    /// The firing of a rule that asked for it; `None` if no rule did, as when a server is emptied.
    pub cause: Option<Cause>,
    /// What is to change.
    pub change: Change,
    /// The servers that were considered, the best first.
    pub candidates: Vec<Candidate>,
    /// What became of it.
    pub outcome: Outcome,
}

/// The firing of a rule that a decision rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// The rule, by its index in the policy.
    pub rule: usize,
    /// The rule's name, if it has one.
    pub name: Option<String>,
    /// The rule as written.
    pub text: String,
    /// The actors that its variables are bound to.
    pub binding: Vec<Bound>,
    /// The server that `server` stood for.
    pub server: Option<NodeId>,
    /// Its comparisons, with what was measured.
    pub values: Vec<Observed>,
}

impl Cause {
    /// The cause that this firing of a rule of this name and text is.
    pub(crate) fn new(fired: &Fired, name: Option<&str>, text: &str) -> Self {
        Self {
            rule: fired.rule,
            name: name.map(str::to_owned),
            text: text.to_owned(),
            binding: fired.binding.clone(),
            server: fired.server,
            values: fired.values.clone(),
        }
    }

    /// The rule as people speak of it: by its name, else by its place in the policy, counted from one.
    pub fn rule_name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => (self.rule + 1).to_string(),
        }
    }
}

/// What a decision changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Actors move as one.
    Move {
        /// The actor that the decision is about.
        actor: ActorId,
        /// The actors that move along because relations keep them together.
        with: Vec<ActorId>,
        /// Where they are.
        from: NodeId,
        /// Where they go; `None` if no server was found for them.
        to: Option<NodeId>,
        /// What for.
        purpose: Purpose,
    },
    /// A server takes no other actors than this one and those that rules colocate with it.
    Dedicate {
        /// The reserved actor.
        actor: ActorId,
        /// The server.
        node: NodeId,
        /// The resource that the actor needs.
        resource: Resource,
        /// Another reserved actor that it shares the server with, because there can't be more servers.
        shared_with: Option<ActorId>,
    },
    /// A server is no longer dedicated to an actor.
    Release {
        /// The actor that was reserved.
        actor: ActorId,
        /// The server.
        node: NodeId,
        /// Why the reservation ended.
        reason: ReleaseReason,
    },
    /// The two actors are no longer held together, because no server has room for all that is held together with them.
    Part {
        /// One.
        first: ActorId,
        /// The other.
        second: ActorId,
    },
    /// The cluster gets more servers.
    AddServers {
        /// How many.
        count: u32,
        /// The actor that needs one of its own, if that is the reason.
        reserved: Option<ActorId>,
    },
    /// A server is emptied and leaves.
    RemoveServer {
        /// The server.
        node: NodeId,
    },
}

/// Why a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// The reason of the reservation has been gone for some periods.
    Over,
    /// The actor has left the server, as when an operator moves it.
    Left,
    /// The actor never came.
    NeverCame,
}

/// What a move is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Purpose {
    /// To a server of its own.
    Reserve(Resource),
    /// Away from a server that another actor has for itself.
    MakeRoom {
        /// The actor that the server is reserved for.
        reserved: ActorId,
    },
    /// To spread the load of a resource.
    Balance(Resource),
    /// To another server than this actor's.
    Separate(ActorId),
    /// To the server of this actor.
    Colocate(ActorId),
    /// Away from a server that is being emptied.
    Drain,
}

/// A server that was considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which server.
    pub node: NodeId,
    /// How good it is: higher is better. Scores of different purposes can't be compared.
    pub score: f64,
    /// Why it was not chosen; `None` for the chosen one.
    pub refused: Option<Refusal>,
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing yet.
    Proposed,
    /// It is not carried out.
    Refused(Refusal),
    /// It is being carried out.
    Started,
    /// It was carried out.
    Done,
    /// It was begun and did not succeed.
    Failed(String),
}

impl Outcome {
    /// Whether nothing more will become of it.
    pub fn is_final(&self) -> bool {
        matches!(self, Outcome::Refused(_) | Outcome::Done | Outcome::Failed(_))
    }
}

impl Decision {
    /// The actor that the decision is about, if it is about one.
    pub fn actor(&self) -> Option<&ActorId> {
        match &self.change {
            Change::Move { actor, .. } | Change::Dedicate { actor, .. } | Change::Release { actor, .. } => Some(actor),
            Change::Part { first, .. } => Some(first),
            Change::AddServers { reserved, .. } => reserved.as_ref(),
            Change::RemoveServer { .. } => None,
        }
    }

    /// The same decision with this outcome.
    pub(crate) fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }
}

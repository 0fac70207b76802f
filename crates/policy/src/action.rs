//! Proposed actions: the result of evaluating a policy, which elasticity managers turn into decisions.

use elastin_types::{ActorId, ActorType, NodeId, Resource};
use serde::{Deserialize, Serialize};

/// One firing of one rule: a binding of its variables that made its condition true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fired {
    /// The rule, by its index in the policy.
    pub rule: usize,
    /// The actors that the rule's variables are bound to, in order of first occurrence.
    pub binding: Vec<Bound>,
    /// The server that `server` stood for, if the rule mentions it.
    pub server: Option<NodeId>,
    /// The comparisons that made the condition true, with the measured values.
    pub values: Vec<Observed>,
    /// The actions that the rule proposes for this binding.
    pub actions: Vec<Action>,
}

/// A variable and the actor it is bound to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The variable's name; for a bare type, the type's name.
    pub variable: String,
    /// The actor.
    pub actor: ActorId,
}

/// One comparison of a condition, with the value that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The comparison as written, such as `server.cpu.perc > 80`.
    pub text: String,
    /// The measured value of the left side; `None` if it was unknown.
    pub value: Option<f64>,
    /// Whether the comparison held.
    pub held: bool,
}

/// An action that a rule proposes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Spread the load of a resource by moving actors of some types.
    Balance(Balance),
    /// Give the actor a server of its own with enough of the resource.
    Reserve {
        /// The actor.
        actor: ActorId,
        /// The resource that it needs.
        resource: Resource,
    },
    /// Keep the two actors on one server.
    Colocate(ActorId, ActorId),
    /// Keep the two actors on different servers.
    Separate(ActorId, ActorId),
    /// Leave the actor where it is.
    Pin(ActorId),
}

/// A `balance` behaviour with the bounds that its rule's condition names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// The actor types that may be moved; empty for `any`.
    pub kinds: Vec<ActorType>,
    /// The resource to balance.
    pub resource: Resource,
    /// Above this percentage a server is overloaded.
    pub upper: Option<f64>,
    /// Below this percentage a server is underused.
    pub lower: Option<f64>,
}

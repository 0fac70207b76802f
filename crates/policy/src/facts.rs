//! The input of rule evaluation: the measurements of one elasticity period, with references and calls navigable in both
//! directions.

use std::time::Duration;

use elastin_types::{ActorId, ActorType, Method, NodeId, Property, Resource, Usage};

/// The number of an actor within some facts, so that joins compare and copy numbers instead of ids. Valid only for the
/// facts that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorIndex(pub u32);

/// Calls in one elasticity period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The number of calls.
    pub count: u64,
    /// Their total encoded size in bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Calls {
    fn add_assign(&mut self, other: Calls) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Recorded calls between two actors with one function, seen from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The actor at the other end.
    pub peer: ActorIndex,
    /// The function.
    pub method: Method,
    /// The calls.
    pub calls: Calls,
}

/// The facts of one elasticity period. An actor is *listed* if its own measurements are present, and merely *named* if
/// only calls or references of others mention it.
pub trait Facts {
    /// The length of the period.
    fn period(&self) -> Duration;

    /// The servers with known usage, each once.
    fn servers(&self) -> impl Iterator<Item = NodeId>;

    /// How much of a server's resource was used.
    fn usage(&self, node: NodeId, resource: Resource) -> Option<Usage>;

    /// The listed actors of a type, or of all types if it is `None`.
    fn listed(&self, kind: Option<ActorType>) -> &[ActorIndex];

    /// The number of an actor that is listed or named.
    fn find(&self, actor: &ActorId) -> Option<ActorIndex>;

    /// The id of an actor.
    fn id(&self, actor: ActorIndex) -> &ActorId;

    /// The server that a listed actor is on; `None` for one that is only named.
    fn node(&self, actor: ActorIndex) -> Option<NodeId>;

    /// The amount of a resource that a listed actor used.
    fn used(&self, actor: ActorIndex, resource: Resource) -> Option<f64>;

    /// The distinct targets of a property of an actor, in ascending order; empty if the actor is not listed.
    fn references(&self, holder: ActorIndex, property: Property) -> &[ActorIndex];

    /// The listed actors that refer to an actor with some property: (property, holder), in ascending order.
    fn referrers(&self, target: ActorIndex) -> &[(Property, ActorIndex)];

    /// Recorded calls that an actor received from actors, ordered by peer, then by function.
    fn calls_in(&self, callee: ActorIndex) -> &[Edge];

    /// Recorded calls that an actor made to actors, ordered by peer, then by function.
    fn calls_out(&self, caller: ActorIndex) -> &[Edge];

    /// Calls that a listed actor received from outside the cluster.
    fn client_calls(&self, callee: ActorIndex, method: Method) -> Calls;
}

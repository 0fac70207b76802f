//! What was measured in one elasticity period: the facts that policies are evaluated on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ActorId, Caller, Method, NodeId, PerResource, Property, Time, Usage};

/// What some servers and the actors on them did in one elasticity period. A server's own snapshot has itself and its
/// actors; a global one has those of all servers that report to one manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The end of the period.
    pub at: Time,
    /// How long it was.
    pub period: Duration,
    /// The servers.
    pub servers: Vec<ServerStats>,
    /// The actors. One that is not listed may still be named by calls and references of listed ones: nothing else is
    /// known of it then.
    pub actors: Vec<ActorStats>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Which server.
    pub node: NodeId,
    /// Whether it may take actors.
    pub state: ServerState,
    /// How much of each resource is used, out of how much there is.
    pub usage: PerResource<Usage>,
    /// The CPU time that its arrivals and its backlog ask for, in CPU milliseconds per second. Use saturates at the
    /// capacity and hides how much more would be needed; this does not.
    pub cpu_demand: f64,
    /// How many actors are active on it, listed or not.
    pub actors: u64,
}

/// Whether a server takes part in placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerState {
    /// It takes actors.
    #[default]
    Active,
    /// It is being emptied and takes none.
    Draining,
}

/// One actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorStats {
    /// Which actor.
    pub actor: ActorId,
    /// The server it is on.
    pub node: NodeId,
    /// Since when it is there.
    pub since: Time,
    /// What it uses of each resource; for memory, the size of its state.
    pub used: PerResource<f64>,
    /// The heaviest callers of this actor, by caller and function.
    pub calls_in: Vec<CallIn>,
    /// The actors that this one called most, by actor and function.
    pub calls_out: Vec<CallOut>,
    /// Whom its properties refer to, as of the end of its last turn.
    pub references: Vec<References>,
    /// How long the turns of each function took.
    #[serde(default)]
    pub functions: Vec<FunctionStats>,
}

/// How long the turns of one function of an actor took in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionStats {
    /// The function.
    pub method: Method,
    /// How many turns, by sampling.
    pub count: u64,
    /// How long they took together from beginning to end, waits included, by sampling.
    pub latency_sum: Duration,
    /// How long the longest of those that were measured took.
    pub latency_max: Duration,
}

impl FunctionStats {
    /// A function that has had no turn.
    pub fn new(method: Method) -> Self {
        Self {
            method,
            count: 0,
            latency_sum: Duration::ZERO,
            latency_max: Duration::ZERO,
        }
    }

    /// How long a turn took on average; `None` if there was none.
    pub fn latency(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).ok().filter(|count| *count > 0)?;
        Some(self.latency_sum / count)
    }
}

/// Calls that an actor got from one caller with one function in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallIn {
    /// Who called.
    pub caller: Caller,
    /// The function.
    pub method: Method,
    /// How many calls.
    pub count: u64,
    /// Their encoded size in all.
    pub bytes: u64,
    /// Where the caller was when it last called.
    pub node: Option<NodeId>,
}

/// Calls that an actor made to another with one function in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallOut {
    /// Who was called.
    pub callee: ActorId,
    /// The function.
    pub method: Method,
    /// How many calls.
    pub count: u64,
    /// Their encoded size in all.
    pub bytes: u64,
    /// Where the callee was when it was last called.
    pub node: Option<NodeId>,
}

/// Whom one property of an actor refers to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct References {
    /// The property.
    pub property: Property,
    /// The actors, in the property's own order.
    pub actors: Vec<ActorId>,
}

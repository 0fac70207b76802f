//! Measurements of one elasticity period: the input of policy evaluation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ActorId, Caller, Method, NodeId, PerResource, Property, Time, Usage};

/// Measurements of servers and their actors in one elasticity period. A server's own snapshot contains itself and its
/// actors; a global one contains all servers that report to one manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The end of the period.
    pub at: Time,
    /// The length of the period.
    pub period: Duration,
    /// The servers.
    pub servers: Vec<ServerStats>,
    /// The actors. Calls and references of listed actors may name actors that are not listed.
    pub actors: Vec<ActorStats>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The server's node.
    pub node: NodeId,
    /// Whether it accepts actors.
    pub state: ServerState,
    /// Usage and capacity of each resource.
    pub usage: PerResource<Usage>,
    /// The CPU demand of arrivals and backlog, in CPU milliseconds per second. Unlike usage, it is not capped by the
    /// capacity.
    pub cpu_demand: f64,
    /// Number of active actors, listed or not.
    pub actors: u64,
}

/// Whether a server participates in placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerState {
    /// It accepts actors.
    #[default]
    Active,
    /// It is being drained and accepts none.
    Draining,
}

/// One actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorStats {
    /// The actor's id.
    pub actor: ActorId,
    /// The server it is on.
    pub node: NodeId,
    /// The start of its activation on that server.
    pub since: Time,
    /// Usage of each resource; for memory, the size of its state.
    pub used: PerResource<f64>,
    /// The heaviest callers of this actor, by caller and function.
    pub calls_in: Vec<CallIn>,
    /// The actors that this one called most, by callee and function.
    pub calls_out: Vec<CallOut>,
    /// The targets of its properties, as of the end of its last turn.
    pub references: Vec<References>,
    /// Latencies of the turns of each function.
    #[serde(default)]
    pub functions: Vec<FunctionStats>,
}

/// Latencies of the turns of one function of an actor in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionStats {
    /// The function.
    pub method: Method,
    /// Number of turns, estimated by sampling.
    pub count: u64,
    /// Sum of their latencies, including waits, estimated by sampling.
    pub latency_sum: Duration,
    /// Latency of the longest measured turn.
    pub latency_max: Duration,
}

impl FunctionStats {
    /// Statistics of a function without turns.
    pub fn new(method: Method) -> Self {
        Self {
            method,
            count: 0,
            latency_sum: Duration::ZERO,
            latency_max: Duration::ZERO,
        }
    }

    /// The mean latency; `None` without turns.
    pub fn latency(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).ok().filter(|count| *count > 0)?;
        Some(self.latency_sum / count)
    }
}

/// Calls that an actor received from one caller for one function in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallIn {
    /// The caller.
    pub caller: Caller,
    /// The function.
    pub method: Method,
    /// Number of calls.
    pub count: u64,
    /// Their total encoded size.
    pub bytes: u64,
    /// The caller's node at its last call.
    pub node: Option<NodeId>,
}

/// Calls that an actor made to another for one function in the period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallOut {
    /// The callee.
    pub callee: ActorId,
    /// The function.
    pub method: Method,
    /// Number of calls.
    pub count: u64,
    /// Their total encoded size.
    pub bytes: u64,
    /// The callee's node at the last call.
    pub node: Option<NodeId>,
}

/// The targets of one property of an actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct References {
    /// The property.
    pub property: Property,
    /// The actors, in the property's own order.
    pub actors: Vec<ActorId>,
}

//! The load of clients on actors and servers, as a formula instead of single calls.

use std::collections::BTreeMap;

use elastin_types::{ActorId, Method, NodeId};

/// CPU time that each side of a remote call spends on sending it, in milliseconds.
const REMOTE_MS: f64 = 0.2;

/// Round-trip delay of a remote call, in milliseconds.
const REMOTE_DELAY_MS: f64 = 1.0;

/// A kind of request: a client calls an actor, which calls others.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) target: ActorId,
    pub(crate) method: Method,
    /// CPU time of the called actor per request, in milliseconds.
    pub(crate) cpu_ms: f64,
    /// Bytes over the network per request, in and out.
    pub(crate) net_bytes: f64,
    /// Calls that the called actor makes, each in this fraction of the requests.
    pub(crate) nested: Vec<Nested>,
    /// Frequency: the fraction of all requests under closed load, else requests per second.
    pub(crate) weight: f64,
}

/// A call that an actor makes while it serves a request.
#[derive(Clone, Debug)]
pub(crate) struct Nested {
    pub(crate) target: ActorId,
    pub(crate) method: Method,
    pub(crate) cpu_ms: f64,
    pub(crate) part: f64,
}

/// The arrival model of requests.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Closed loop: this many clients, each with one request at a time.
    Closed { clients: f64, think_ms: f64 },
    /// Open loop: requests arrive at the rates of the flows, regardless of their completion.
    Open,
}

/// Rates per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) actor_cpu: BTreeMap<ActorId, f64>,
    pub(crate) actor_net: BTreeMap<ActorId, f64>,
    pub(crate) server_cpu: BTreeMap<NodeId, f64>,
    pub(crate) server_demand: BTreeMap<NodeId, f64>,
    pub(crate) client_calls: BTreeMap<(ActorId, Method), f64>,
    /// Keyed by caller, callee and function.
    pub(crate) calls: BTreeMap<(ActorId, ActorId, Method), f64>,
    /// Requests served per second.
    pub(crate) served: f64,
}

/// The CPU time that one request needs, by server and by actor.
#[derive(Default)]
struct Cost {
    by_server: BTreeMap<NodeId, f64>,
    by_actor: BTreeMap<ActorId, f64>,
    delay_ms: f64,
}

fn cost(flow: &Flow, place: &BTreeMap<ActorId, NodeId>) -> Cost {
    let mut cost = Cost::default();
    let mut spend = |actor: &ActorId, ms: f64| {
        *cost.by_actor.entry(actor.clone()).or_default() += ms;
        if let Some(node) = place.get(actor) {
            *cost.by_server.entry(*node).or_default() += ms;
        }
    };
    spend(&flow.target, flow.cpu_ms);
    for nested in &flow.nested {
        spend(&nested.target, nested.part * nested.cpu_ms);
        if place.get(&nested.target) != place.get(&flow.target) {
            spend(&flow.target, nested.part * REMOTE_MS);
            spend(&nested.target, nested.part * REMOTE_MS);
        }
    }
    let remote = flow
        .nested
        .iter()
        .filter(|nested| place.get(&nested.target) != place.get(&flow.target));
    cost.delay_ms = remote.map(|nested| nested.part * REMOTE_DELAY_MS).sum();
    cost
}

/// The rates for the current placement. A server has `capacity` CPU milliseconds per second.
pub(crate) fn rates(
    load: &Load,
    flows: &[Flow],
    place: &BTreeMap<ActorId, NodeId>,
    capacity: &BTreeMap<NodeId, f64>,
) -> Rates {
    let costs: Vec<Cost> = flows.iter().map(|flow| cost(flow, place)).collect();
    let mut rates = Rates::default();
    let wanted: Vec<f64> = match load {
        Load::Open => flows.iter().map(|flow| flow.weight).collect(),
        Load::Closed { clients, think_ms } => {
            let per_request = |cost: &Cost| cost.by_server.values().sum::<f64>() + cost.delay_ms;
            let all: f64 = flows.iter().map(|flow| flow.weight).sum();
            let mean: f64 = flows
                .iter()
                .zip(&costs)
                .map(|(flow, cost)| flow.weight / all * per_request(cost))
                .sum();
            let requests = clients / (think_ms + mean) * 1000.0;
            flows.iter().map(|flow| requests * flow.weight / all).collect()
        }
    };
    for (cost, wanted) in costs.iter().zip(&wanted) {
        for (node, ms) in &cost.by_server {
            *rates.server_demand.entry(*node).or_default() += ms * wanted;
        }
    }
    let fullness = |node: &NodeId| {
        let demand = rates.server_demand.get(node).copied().unwrap_or(0.0);
        demand / capacity.get(node).copied().unwrap_or(f64::INFINITY)
    };
    // Closed-loop clients eventually all wait for the slowest server; open-loop ones only for their own.
    let slowest = rates.server_demand.keys().map(fullness).fold(1.0, f64::max);
    let served: Vec<f64> = wanted
        .iter()
        .zip(&costs)
        .map(|(wanted, cost)| match load {
            Load::Closed { .. } => wanted / slowest,
            Load::Open => wanted / cost.by_server.keys().map(fullness).fold(1.0, f64::max),
        })
        .collect();
    let mut arrived: BTreeMap<NodeId, f64> = BTreeMap::new();
    for ((flow, cost), served) in flows.iter().zip(&costs).zip(served) {
        rates.served += served;
        if let Load::Closed { .. } = load {
            // Closed-loop clients do not demand more than they get; their few waiting requests are a negligible
            // backlog.
            for (node, ms) in &cost.by_server {
                *arrived.entry(*node).or_default() += ms * served;
            }
        }
        for (node, ms) in &cost.by_server {
            *rates.server_cpu.entry(*node).or_default() += ms * served;
        }
        for (actor, ms) in &cost.by_actor {
            *rates.actor_cpu.entry(actor.clone()).or_default() += ms * served;
        }
        *rates.actor_net.entry(flow.target.clone()).or_default() += flow.net_bytes * served;
        *rates
            .client_calls
            .entry((flow.target.clone(), flow.method))
            .or_default() += served;
        for nested in &flow.nested {
            let key = (flow.target.clone(), nested.target.clone(), nested.method);
            *rates.calls.entry(key).or_default() += nested.part * served;
        }
    }
    if let Load::Closed { .. } = load {
        rates.server_demand = arrived;
    }
    rates
}

//! Bounds that rules put on server use, and the load compared with them.

use elastin_policy::{Action, Balance, Behaviour, Policy};
use elastin_types::{Resource, ServerStats};

/// The limit up to which a `balance` fills servers, in percent: its own upper bound, else the lowest bound of any rule,
/// else 100.
pub(crate) fn upper_limit(policy: &Policy, balance: &Balance) -> f64 {
    balance
        .upper
        .or_else(|| policy.lowest_upper_bound(balance.resource))
        .unwrap_or(100.0)
}

/// The lowest limit of `balance` rules for a resource, with the highest priority of such a rule.
pub(crate) fn balance_limit(policy: &Policy, resource: Resource) -> Option<(f64, i32)> {
    policy
        .balances()
        .filter(|(_, balance)| balance.resource == resource)
        .map(|(rule, balance)| {
            let priority = policy.priority(rule, &Action::Balance(balance.clone()));
            (upper_limit(policy, balance), priority)
        })
        .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// The highest priority of a rule that separates actors; a rule with a higher priority may bring them together.
pub(crate) fn separation_priority(policy: &Policy) -> Option<i32> {
    let behaviours = policy.rules().iter().flat_map(|rule| {
        let own = rule.behaviours.iter();
        own.map(move |behaviour| (rule, behaviour))
    });
    behaviours
        .filter(|(_, behaviour)| matches!(behaviour, Behaviour::Separate(..)))
        .map(|(rule, behaviour)| rule.priority_of(behaviour))
        .max()
}

/// Capacity of a server; `None` if it is unknown or zero.
pub(crate) fn capacity(server: &ServerStats, resource: Resource) -> Option<f64> {
    server.usage[resource].capacity.filter(|capacity| *capacity > 0.0)
}

/// CPU time demanded by a server's actors. Use saturates at the server's capacity, demand does not.
pub(crate) fn demand(server: &ServerStats) -> f64 {
    server.usage.cpu.used.max(server.cpu_demand)
}

/// Demand of a server's actors for a resource.
pub(crate) fn asked_for(server: &ServerStats, resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => demand(server),
        Resource::Mem | Resource::Net => server.usage[resource].used,
    }
}

//! Resources promised to actors on their way to this server, so that the same room is not promised twice.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, NodeId, PerResource, Resource, Snapshot, Time};

use crate::Query;

/// Maximum number of open promises: far more than a server admits in a few periods.
const PROMISES_MAX: usize = 4_096;

/// The promises of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    by_query: BTreeMap<(NodeId, u64), Promise>,
}

#[derive(Clone, Debug)]
struct Promise {
    actors: BTreeSet<ActorId>,
    used: PerResource<f64>,
    expires: Time,
}

impl Promises {
    /// Whether another promise can be made.
    pub(crate) fn has_space(&self) -> bool {
        self.by_query.len() < PROMISES_MAX
    }

    /// Holds the query's resources until the server's own statistics include the actors.
    pub(crate) fn make(&mut self, expires: Time, from: NodeId, query: &Query) {
        let promise = Promise {
            actors: query.actors.iter().cloned().collect(),
            used: query.used,
            expires,
        };
        self.by_query.insert((from, query.query), promise);
    }

    /// Withdraws a promise: the actors will not arrive. Returns them.
    pub(crate) fn withdraw(&mut self, from: NodeId, query: u64) -> Vec<ActorId> {
        let promise = self.by_query.remove(&(from, query));
        promise
            .map(|promise| promise.actors.into_iter().collect())
            .unwrap_or_default()
    }

    /// Drops promises whose actors are fully included in the new statistics.
    pub(crate) fn review(&mut self, now: Time, snapshot: &Snapshot) {
        let settled: BTreeSet<&ActorId> = snapshot
            .actors
            .iter()
            .filter(|stats| stats.since + snapshot.period <= snapshot.at)
            .map(|stats| &stats.actor)
            .collect();
        self.by_query
            .retain(|_, promise| promise.expires > now && !promise.actors.iter().all(|actor| settled.contains(actor)));
    }

    /// Total of the promised resources.
    pub(crate) fn used(&self) -> PerResource<f64> {
        let mut sum = PerResource::default();
        for promise in self.by_query.values() {
            for resource in Resource::ALL {
                sum[resource] += promise.used[resource];
            }
        }
        sum
    }

    /// Whether this actor has been promised a place.
    pub(crate) fn covers(&self, actor: &ActorId) -> bool {
        self.by_query.values().any(|promise| promise.actors.contains(actor))
    }

    /// The actors that have been promised a place.
    pub(crate) fn actors(&self) -> impl Iterator<Item = &ActorId> {
        self.by_query.values().flat_map(|promise| &promise.actors)
    }

    /// Whether there is no open promise.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_query.is_empty()
    }
}

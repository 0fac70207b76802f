//! The statistics of the last period, and the actors that have left since.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, ActorStats, Caller, NodeId, PerResource, ServerStats, Snapshot, Time};

/// The last snapshot of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    snapshot: Snapshot,
    /// Index of each actor in the snapshot.
    index_of: BTreeMap<ActorId, usize>,
    /// Actors that have left since the snapshot was taken.
    gone: BTreeSet<ActorId>,
    /// Resources used by actors that have moved away since the snapshot's period began, with the time.
    departures: Vec<(Time, PerResource<f64>)>,
}

impl Statistics {
    pub(crate) fn replace(&mut self, snapshot: Snapshot) {
        let listed = snapshot.actors.iter().enumerate();
        self.index_of = listed.map(|(index, stats)| (stats.actor.clone(), index)).collect();
        self.snapshot = snapshot;
        self.gone.clear();
        let start = self.period_start();
        self.departures.retain(|(at, _)| *at > start);
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn period_start(&self) -> Time {
        self.snapshot.at - self.snapshot.period
    }

    pub(crate) fn server(&self, node: NodeId) -> Option<&ServerStats> {
        self.snapshot.servers.iter().find(|server| server.node == node)
    }

    /// Statistics of an actor, even if it has left since.
    pub(crate) fn actor(&self, actor: &ActorId) -> Option<&ActorStats> {
        self.index_of.get(actor).map(|index| &self.snapshot.actors[*index])
    }

    /// The actors that have not left since the snapshot was taken.
    pub(crate) fn present(&self) -> impl Iterator<Item = &ActorStats> {
        let actors = self.snapshot.actors.iter();
        actors.filter(move |stats| !self.has_left(&stats.actor))
    }

    /// The actors that have been here for less than the period.
    pub(crate) fn arrived(&self) -> impl Iterator<Item = &ActorStats> {
        let start = self.period_start();
        self.snapshot.actors.iter().filter(move |stats| stats.since > start)
    }

    /// Removes an actor that has moved away.
    pub(crate) fn remove(&mut self, now: Time, actor: &ActorId) {
        let used = self.actor(actor).map(|stats| stats.used).unwrap_or_default();
        self.gone.insert(actor.clone());
        self.departures.push((now, used));
    }

    pub(crate) fn has_left(&self, actor: &ActorId) -> bool {
        self.gone.contains(actor)
    }

    /// Number of actors that have left since the snapshot was taken.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.len() as u64
    }

    /// Resources used by each actor that moved away during the period or since.
    pub(crate) fn departed(&self) -> impl Iterator<Item = &PerResource<f64>> {
        self.departures.iter().map(|(_, used)| used)
    }

    /// Calls between two actors in the last period, as far as this server recorded them.
    pub(crate) fn calls_between(&self, one: &ActorId, other: &ActorId) -> u64 {
        // Calls between two local actors appear in both actors' tables and must count once.
        let seen_by = |actor: &ActorId, peer: &ActorId| self.actor(actor).map_or(0, |stats| calls_with(stats, peer));
        seen_by(one, other).max(seen_by(other, one))
    }
}

/// Calls between the actor and this peer, in both directions.
fn calls_with(stats: &ActorStats, peer: &ActorId) -> u64 {
    let incoming = stats.calls_in.iter().filter_map(|call| match &call.caller {
        Caller::Actor(caller) if caller == peer => Some(call.count),
        _ => None,
    });
    let outgoing = stats.calls_out.iter().filter(|call| call.callee == *peer);
    incoming.sum::<u64>() + outgoing.map(|call| call.count).sum::<u64>()
}

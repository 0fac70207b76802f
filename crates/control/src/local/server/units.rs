//! The units of a server: groups of actors that relations keep together and that move as one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elastin_types::{ActorId, ActorStats, NodeId, PerResource, Resource, Time};

use super::{Promises, Refusals, Relations, Statistics};
use crate::{Held, Unit};

/// The units of a server, indexed by actor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Units {
    units: Vec<Unit>,
    /// For each unit, the time since which most of it has been here.
    since: Vec<Time>,
    unit_of: BTreeMap<ActorId, usize>,
}

/// Weight of an idle actor, in CPU milliseconds per second.
const IDLE_WEIGHT: f64 = 0.001;

impl Units {
    /// The units of the actors present. Their CPU use is scaled by the ratio of demand to use.
    pub(crate) fn new(
        statistics: &Statistics,
        relations: &Relations,
        promises: &Promises,
        refusals: &Refusals,
        demand_factor: f64,
    ) -> Self {
        let actors: Vec<&ActorStats> = statistics.present().collect();
        let index_of: BTreeMap<&ActorId, usize> = actors
            .iter()
            .enumerate()
            .map(|(index, stats)| (&stats.actor, index))
            .collect();
        let mut forest = Forest::new(actors.len());
        for ((one, other), _) in relations.pairs_together() {
            if let (Some(one), Some(other)) = (index_of.get(one), index_of.get(other)) {
                forest.join(*one, *other);
            }
        }
        let apart = relations.apart_by_actor();
        let mut members: BTreeMap<usize, Vec<&ActorStats>> = BTreeMap::new();
        for (index, stats) in actors.iter().enumerate() {
            members.entry(forest.root(index)).or_default().push(stats);
        }
        // Actors without a promise were activated here.
        let moved: BTreeSet<&ActorId> = promises.actors().collect();
        let since = members.values().map(|members| arrived_by(members, &moved)).collect();
        let units: Vec<Unit> = members
            .into_values()
            .map(|members| unit(members, relations, &apart, refusals, demand_factor))
            .collect();
        let unit_of = units
            .iter()
            .enumerate()
            .flat_map(|(index, unit)| unit.actors.iter().map(move |actor| (actor.clone(), index)))
            .collect();
        Self { units, since, unit_of }
    }

    /// All units.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter()
    }

    /// The actor's unit; `None` if the actor is not on this server.
    pub(crate) fn of(&self, actor: &ActorId) -> Option<&Unit> {
        self.unit_of.get(actor).map(|index| &self.units[*index])
    }

    /// Why a unit cannot move now: it is pinned, or most of it arrived less than a period ago.
    pub(crate) fn held(&self, unit: &Unit, now: Time, period: Duration) -> Option<Held> {
        let index = self.unit_of.get(&unit.lead)?;
        let recent = self.since[*index] + period > now;
        unit.held
            .clone()
            .or_else(|| recent.then(|| Held::Recent(unit.lead.clone())))
    }

    /// Whether an actor is on this server.
    pub(crate) fn contains(&self, actor: &ActorId) -> bool {
        self.unit_of.contains_key(actor)
    }
}

/// The time when most of a unit, by use, had arrived. A small newcomer must not hold the others back: a group that
/// actors keep joining always has one.
fn arrived_by(members: &[&ActorStats], moved: &BTreeSet<&ActorId>) -> Time {
    let mut arrivals: Vec<(Time, f64)> = members
        .iter()
        .map(|stats| {
            let arrived = if moved.contains(&stats.actor) {
                stats.since
            } else {
                Time::ZERO
            };
            // Idle actors count a little; otherwise a unit of idle actors would have no majority.
            (arrived, stats.used.cpu + IDLE_WEIGHT)
        })
        .collect();
    arrivals.sort_by_key(|(arrived, _)| *arrived);
    let half = arrivals.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let by_then = arrivals.iter().find(|(_, weight)| {
        sum += weight;
        sum >= half
    });
    by_then.map_or(Time::ZERO, |(arrived, _)| *arrived)
}

fn unit(
    members: Vec<&ActorStats>,
    relations: &Relations,
    apart: &BTreeMap<&ActorId, Vec<&ActorId>>,
    refusals: &Refusals,
    demand_factor: f64,
) -> Unit {
    let mut actors: Vec<ActorId> = members.iter().map(|stats| stats.actor.clone()).collect();
    actors.sort();
    let mut used = PerResource::default();
    for resource in Resource::ALL {
        used[resource] = members.iter().map(|stats| stats.used[resource]).sum();
    }
    used.cpu *= demand_factor;
    let pinned = actors
        .iter()
        .filter_map(|actor| Some((relations.pinned(actor)?, actor)))
        .max_by_key(|(priority, _)| *priority)
        .map(|(priority, actor)| Held::Pinned(actor.clone(), priority));
    let apart_from: BTreeSet<ActorId> = actors
        .iter()
        .filter_map(|actor| apart.get(actor))
        .flatten()
        .filter(|other| actors.binary_search(other).is_err())
        .map(|other| (*other).clone())
        .collect();
    let refused_by: BTreeSet<NodeId> = actors.iter().flat_map(|actor| refusals.of(actor)).collect();
    Unit {
        lead: actors[0].clone(),
        count: actors.len() as u64,
        held: pinned,
        used,
        apart_from: apart_from.into_iter().collect(),
        refused_by: refused_by.into_iter().collect(),
        actors,
    }
}

/// Disjoint sets of indices (union-find).
struct Forest {
    parents: Vec<usize>,
}

impl Forest {
    fn new(count: usize) -> Self {
        Self {
            parents: (0..count).collect(),
        }
    }

    fn root(&mut self, mut index: usize) -> usize {
        while self.parents[index] != index {
            // Path halving keeps later lookups short.
            self.parents[index] = self.parents[self.parents[index]];
            index = self.parents[index];
        }
        index
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        // The lower index becomes the root, so that the result does not depend on the order of joins.
        let (low, high) = (one.min(other), one.max(other));
        self.parents[high] = low;
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::ActorType;

    use super::*;

    fn stats(key: u64, since: u64, cpu: f64) -> ActorStats {
        ActorStats {
            functions: Vec::new(),
            actor: ActorId::new(ActorType::of("A"), key),
            node: NodeId(1),
            since: Time(since),
            used: PerResource {
                cpu,
                ..PerResource::default()
            },
            calls_in: Vec::new(),
            calls_out: Vec::new(),
            references: Vec::new(),
        }
    }

    #[test]
    fn a_unit_arrived_when_most_of_its_load_had() {
        let check = |members: &[(u64, f64)], expected: u64| {
            let members: Vec<ActorStats> = (0..)
                .zip(members)
                .map(|(key, (since, cpu))| stats(key, *since, *cpu))
                .collect();
            let moved: BTreeSet<&ActorId> = members.iter().map(|stats| &stats.actor).collect();
            let members: Vec<&ActorStats> = members.iter().collect();
            assert_eq!(arrived_by(&members, &moved), Time(expected));
            assert_eq!(arrived_by(&members, &BTreeSet::new()), Time::ZERO, "activated here");
        };
        check(&[(70, 5.0)], 70);
        check(&[(10, 50.0), (70, 5.0)], 10);
        check(&[(10, 5.0), (70, 50.0)], 70);
        check(&[(10, 0.0), (20, 0.0), (70, 0.0)], 20);
    }
}

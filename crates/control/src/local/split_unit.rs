//! Splitting a group that is too large for any server: it gives up its weakest relations, so that it can be balanced.

use std::collections::BTreeSet;

use elastin_types::{ActorId, Resource, Time};

use super::Lem;
use super::event::LemCommand;
use super::relations::Pair;
use crate::{Change, Outcome, Unit};

/// Maximum number of relations given up per period.
const GIVEN_UP_MAX: usize = 64;

impl Lem {
    /// Splits groups whose demand has exceeded the largest server for two consecutive periods.
    pub(super) fn split_oversized(&mut self, now: Time, out: &mut Vec<LemCommand>) {
        let before = std::mem::take(&mut self.oversized);
        for resource in Resource::ALL {
            let Some(largest) = self.largest_capacity(resource) else {
                continue;
            };
            let limit = largest * (1.0 + self.settings.noise_margin / 100.0);
            let too_large: Vec<&Unit> = self.too_large(resource, limit).collect();
            let due: BTreeSet<ActorId> = too_large
                .iter()
                .filter(|unit| before.contains(&unit.lead))
                .flat_map(|unit| unit.actors.iter().cloned())
                .collect();
            let leads = too_large.iter().map(|unit| unit.lead.clone()).collect::<Vec<_>>();
            self.oversized.extend(leads);
            for _ in 0..GIVEN_UP_MAX {
                let unit = self.too_large(resource, limit).find(|unit| due.contains(&unit.lead));
                let Some(pair) = unit.and_then(|unit| self.weakest_pair(unit)) else {
                    break;
                };
                self.split(now, pair, out);
            }
        }
    }

    fn split(&mut self, now: Time, pair: Pair, out: &mut Vec<LemCommand>) {
        let relation = self.relations.together.get(&pair);
        let cause = relation.map(|relation| relation.cause.clone());
        let change = Change::Part {
            first: pair.0.clone(),
            second: pair.1.clone(),
        };
        self.relations.give_up(pair);
        let decision = self.decision(now, cause, change, Vec::new());
        out.push(LemCommand::record(decision.with_outcome(Outcome::Done)));
        self.rebuild_units();
    }

    /// The units of several actors with more demand for a resource than this. Units with a dedicated server are exempt:
    /// they share it with no other unit.
    fn too_large(&self, resource: Resource, limit: f64) -> impl Iterator<Item = &Unit> {
        let is_reserved = |actor: &ActorId| self.reservations.get(actor).is_some();
        self.units
            .iter()
            .filter(move |unit| unit.count > 1 && unit.used[resource] > limit)
            .filter(move |unit| !unit.actors.iter().any(is_reserved))
    }

    /// The pair within a unit with the fewest calls between them, which is the cheapest to split.
    fn weakest_pair(&self, unit: &Unit) -> Option<Pair> {
        let is_in = |actor: &ActorId| unit.actors.binary_search(actor).is_ok();
        self.relations
            .pairs_together()
            .map(|(pair, _)| pair)
            .filter(|(one, other)| is_in(one) && is_in(other))
            .min_by_key(|(one, other)| self.calls_between(one, other))
            .cloned()
    }

    fn largest_capacity(&self, resource: Resource) -> Option<f64> {
        let others = self.known.iter().map(|digest| digest.server.usage[resource].capacity);
        let own = self.own_server().map(|server| server.usage[resource].capacity);
        others.chain(own).flatten().max_by(f64::total_cmp)
    }
}

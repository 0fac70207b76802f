//! Splitting a group that is too large for any server: it gives up its weakest relations, so that it can be balanced.

use std::collections::BTreeSet;

use elastin_types::{ActorId, Resource};

use crate::context::Context;
use crate::local::LemCommand;
use crate::local::server::{OwnServer, Pair};
use crate::record::record;
use crate::{Change, Outcome, ServerDigest, Unit};

/// Maximum number of relations given up per period.
const GIVEN_UP_MAX: usize = 64;

/// Leads of the units that were too large for any server in the last period.
#[derive(Clone, Debug, Default)]
pub(crate) struct OversizedUnits {
    leads: BTreeSet<ActorId>,
}

impl OversizedUnits {
    /// Splits groups whose demand has exceeded the largest server for two consecutive periods.
    pub(crate) fn split(
        &mut self,
        context: &mut Context,
        server: &mut OwnServer,
        known: &[ServerDigest],
        out: &mut Vec<LemCommand>,
    ) {
        let before = std::mem::take(&mut self.leads);
        for resource in Resource::ALL {
            let others = known.iter().map(|digest| digest.server.usage[resource].capacity);
            let own = server.stats(context).map(|stats| stats.usage[resource].capacity);
            let Some(largest) = others.chain(own).flatten().max_by(f64::total_cmp) else {
                continue;
            };
            let limit = largest * (1.0 + context.settings.noise_margin / 100.0);
            let mut due: BTreeSet<ActorId> = BTreeSet::new();
            for unit in too_large(server, resource, limit) {
                if before.contains(&unit.lead) {
                    due.extend(unit.actors.iter().cloned());
                }
                self.leads.insert(unit.lead.clone());
            }
            for _ in 0..GIVEN_UP_MAX {
                let unit = too_large(server, resource, limit).find(|unit| due.contains(&unit.lead));
                let Some(pair) = unit.and_then(|unit| weakest_pair(server, unit)) else {
                    break;
                };
                split(context, server, pair, out);
            }
        }
    }
}

fn split(context: &mut Context, server: &mut OwnServer, pair: Pair, out: &mut Vec<LemCommand>) {
    let change = Change::Part {
        first: pair.0.clone(),
        second: pair.1.clone(),
    };
    let cause = server.relations.give_up(pair);
    record(context.decision(cause, change, Vec::new()), Outcome::Done, out);
    server.rebuild_units(context);
}

/// The units of several actors with more demand for a resource than this. Units with a dedicated server are exempt:
/// they share it with no other unit.
fn too_large(server: &OwnServer, resource: Resource, limit: f64) -> impl Iterator<Item = &Unit> {
    server
        .units
        .iter()
        .filter(move |unit| unit.count > 1 && unit.used[resource] > limit)
        .filter(move |unit| server.reservations.in_unit(unit).next().is_none())
}

/// The pair within a unit with the fewest calls between them, which is the cheapest to split.
fn weakest_pair(server: &OwnServer, unit: &Unit) -> Option<Pair> {
    let is_in = |actor: &ActorId| unit.actors.binary_search(actor).is_ok();
    server
        .relations
        .pairs_together()
        .map(|(pair, _)| pair)
        .filter(|(one, other)| is_in(one) && is_in(other))
        .min_by_key(|(one, other)| server.statistics.calls_between(one, other))
        .cloned()
}

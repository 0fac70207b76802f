//! Which server has room for a unit.

use std::cmp::Ordering;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, PerResource, Resource};

use super::view::{Server, View};
use crate::place::separates_kinds;
use crate::{Candidate, Refusal, Unit};

/// Up to where servers may be filled, in percent, for each resource.
pub(crate) type Limits = PerResource<f64>;

/// The lowest upper bounds that rules name; where none does, all there is.
pub(crate) fn named_limits(policy: &Policy) -> Limits {
    let named = |resource| policy.lowest_upper_bound(resource).unwrap_or(100.0);
    Limits {
        cpu: named(Resource::Cpu),
        mem: named(Resource::Mem),
        net: named(Resource::Net),
    }
}

/// All there is.
pub(crate) const WHOLE: Limits = Limits {
    cpu: 100.0,
    mem: 100.0,
    net: 100.0,
};

/// For actors that have to go somewhere: on a full processor or network they slow down, but memory that is not there can't
/// be used.
pub(crate) const MEMORY_ONLY: Limits = Limits {
    cpu: f64::INFINITY,
    mem: 100.0,
    net: f64::INFINITY,
};

/// Why a unit can't go to a server; `None` if it can.
pub(crate) fn obstacle(policy: &Policy, unit: &Unit, target: &Server, limits: &Limits) -> Option<Refusal> {
    if target.is_draining() {
        return Some(Refusal::Draining);
    }
    if let Some(actor) = target
        .reservations
        .iter()
        .map(|reservation| &reservation.actor)
        .chain(&target.kept_for)
        .next()
    {
        return Some(Refusal::ServerReserved(actor.clone()));
    }
    if unit.refused_by.contains(&target.node()) {
        return Some(Refusal::RefusedBefore);
    }
    separation(policy, unit, target).or_else(|| no_room(unit, target, limits))
}

fn separation(policy: &Policy, unit: &Unit, target: &Server) -> Option<Refusal> {
    for there in &target.report.units {
        let told = unit.apart_from.iter().find(|other| there.actors.contains(other));
        let told_there = || {
            there
                .actors
                .iter()
                .find(|_| intersects(&there.apart_from, &unit.actors))
        };
        if let Some(other) = told.or_else(told_there) {
            return Some(Refusal::KeptApart(other.clone()));
        }
    }
    let by_type = unit.actors.iter().any(|actor| {
        let kinds = &target.report.separated_kinds;
        kinds.iter().any(|other| separates_kinds(policy, actor.kind, *other))
    });
    by_type.then_some(Refusal::KeptApartFromType)
}

fn intersects(some: &[ActorId], others: &[ActorId]) -> bool {
    some.iter().any(|actor| others.contains(actor))
}

fn no_room(unit: &Unit, target: &Server, limits: &Limits) -> Option<Refusal> {
    Resource::ALL.into_iter().find_map(|resource| {
        let percent = target.percent_with(unit, resource)?;
        let limit = limits[resource];
        (unit.used[resource] > 0.0 && percent > limit).then_some(Refusal::NoRoom {
            resource,
            percent,
            limit,
        })
    })
}

/// All servers but one as candidates for a unit, the best first: those that can take it before the others, then by the room
/// that is left there.
pub(crate) fn candidates(
    policy: &Policy,
    view: &View,
    unit: &Unit,
    from: NodeId,
    resource: Resource,
    limits: &Limits,
) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = view
        .servers
        .values()
        .filter(|server| server.node() != from)
        .map(|server| Candidate {
            node: server.node(),
            score: 100.0 - server.percent_with(unit, resource).unwrap_or(0.0),
            refused: obstacle(policy, unit, server, limits),
        })
        .collect();
    candidates.sort_by(by_quality);
    for worse in candidates.iter_mut().skip(1) {
        worse.refused.get_or_insert(Refusal::Worse);
    }
    candidates
}

pub(crate) fn by_quality(one: &Candidate, other: &Candidate) -> Ordering {
    one.refused
        .is_some()
        .cmp(&other.refused.is_some())
        .then(other.score.total_cmp(&one.score))
        .then(one.node.cmp(&other.node))
}

/// The best of some candidates, if it can take the unit.
pub(crate) fn best(candidates: &[Candidate]) -> Option<NodeId> {
    candidates
        .first()
        .filter(|candidate| candidate.refused.is_none())
        .map(|candidate| candidate.node)
}

/// Where the units of a server would go if it were emptied of them; `None` if the others have no room for all of them.
/// The largest go first, because they are the hardest to place.
pub(crate) fn pack(
    policy: &Policy,
    view: &View,
    from: NodeId,
    leads: &[ActorId],
    resource: Resource,
    limits: &Limits,
) -> Option<Vec<(ActorId, NodeId)>> {
    let mut view = view.clone();
    let mut units: Vec<Unit> = view
        .get(from)?
        .report
        .units
        .iter()
        .filter(|unit| leads.contains(&unit.lead))
        .cloned()
        .collect();
    units.sort_by(|one, other| {
        other.used[resource]
            .total_cmp(&one.used[resource])
            .then_with(|| one.lead.cmp(&other.lead))
    });
    let mut placed = Vec::with_capacity(units.len());
    for unit in units {
        let target = best(&candidates(policy, &view, &unit, from, resource, limits))?;
        view.plan_move(&unit.lead, from, target);
        placed.push((unit.lead, target));
    }
    Some(placed)
}

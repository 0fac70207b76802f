//! Which servers have room for a unit.

use std::collections::BTreeMap;

use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, PerResource, Resource};

use super::view::{Server, View};
use crate::decision::{best, rank};
use crate::place::is_separated;
use crate::{Candidate, Refusal, Unit};

/// Conditions for moving a unit to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Fill limit of the server in percent, for each resource.
    pub(crate) limits: PerResource<f64>,
    /// Whether `separate` rules are respected.
    pub(crate) apart: bool,
}

impl Terms {
    /// Servers may be filled completely.
    pub(crate) const WHOLE: Terms = Terms {
        limits: PerResource {
            cpu: 100.0,
            mem: 100.0,
            net: 100.0,
        },
        apart: true,
    };

    /// For actors that must leave: a saturated processor or network slows them down, but memory cannot be exceeded.
    pub(crate) const FORCED: Terms = Terms {
        limits: PerResource {
            cpu: f64::INFINITY,
            mem: 100.0,
            net: f64::INFINITY,
        },
        apart: false,
    };

    /// Fill up to the lowest upper bounds that rules name, or completely where none does.
    pub(crate) fn named(policy: &Policy) -> Self {
        let mut terms = Self::WHOLE;
        for resource in Resource::ALL {
            terms.limits[resource] = policy.lowest_upper_bound(resource).unwrap_or(100.0);
        }
        terms
    }

    /// The same terms with another limit for one resource.
    pub(crate) fn with_limit(mut self, resource: Resource, limit: f64) -> Self {
        self.limits[resource] = limit;
        self
    }

    /// The same terms, ignoring `separate`.
    pub(crate) fn together(self) -> Self {
        Self { apart: false, ..self }
    }
}

/// Why a unit cannot move to a server; `None` if it can.
pub(crate) fn obstacle(policy: &Policy, unit: &Unit, target: &Server, terms: &Terms) -> Option<Refusal> {
    obstacle_with(policy, unit, target, terms, &PerResource::default())
}

/// Like [`obstacle`], with extra load on the server.
fn obstacle_with(
    policy: &Policy,
    unit: &Unit,
    target: &Server,
    terms: &Terms,
    extra: &PerResource<f64>,
) -> Option<Refusal> {
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
    let kept_apart = if terms.apart {
        separation(policy, unit, target)
    } else {
        None
    };
    kept_apart.or_else(|| no_room(unit, target, terms, extra))
}

fn separation(policy: &Policy, unit: &Unit, target: &Server) -> Option<Refusal> {
    for there in &target.report.units {
        let separated_here = unit.apart_from.iter().find(|other| there.actors.contains(other));
        let separated_there = || {
            there
                .actors
                .iter()
                .find(|_| intersects(&there.apart_from, &unit.actors))
        };
        if let Some(other) = separated_here.or_else(separated_there) {
            return Some(Refusal::KeptApart(other.clone()));
        }
    }
    let separated = &target.report.separated_kinds;
    let by_type = unit
        .actors
        .iter()
        .any(|actor| is_separated(policy, actor.kind, separated));
    by_type.then_some(Refusal::KeptApartFromType)
}

fn intersects(some: &[ActorId], others: &[ActorId]) -> bool {
    some.iter().any(|actor| others.contains(actor))
}

fn no_room(unit: &Unit, target: &Server, terms: &Terms, extra: &PerResource<f64>) -> Option<Refusal> {
    let is_first = target.is_empty() && Resource::ALL.into_iter().all(|resource| extra[resource] <= 0.0);
    Resource::ALL.into_iter().find_map(|resource| {
        // A unit that exceeds the limit on any server may have an otherwise empty one.
        if is_first && resource != Resource::Mem {
            return None;
        }
        let capacity = target.capacity(resource)?;
        let percent = target.percent_with(unit, resource)? + 100.0 * extra[resource] / capacity;
        let limit = terms.limits[resource];
        (unit.used[resource] > 0.0 && percent > limit).then_some(Refusal::NoRoom {
            resource,
            percent,
            limit,
        })
    })
}

/// All servers but one as candidates for a unit, best first: servers that can take it before the others, then by
/// remaining room.
fn candidates(
    policy: &Policy,
    view: &View,
    unit: &Unit,
    from: NodeId,
    resource: Resource,
    terms: &Terms,
) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = view
        .servers
        .values()
        .filter(|server| server.node() != from)
        .map(|server| Candidate {
            node: server.node(),
            score: 100.0 - server.percent_with(unit, resource).unwrap_or(0.0),
            refused: obstacle(policy, unit, server, terms),
        })
        .collect();
    rank(&mut candidates);
    candidates
}

/// The candidates under the first terms that some server can meet; under the last terms if none can.
pub(crate) fn candidates_under(
    policy: &Policy,
    view: &View,
    unit: &Unit,
    from: NodeId,
    resource: Resource,
    terms: &[Terms],
) -> Vec<Candidate> {
    let mut found = Vec::new();
    for terms in terms {
        found = candidates(policy, view, unit, from, resource, terms);
        if best(&found).is_some() {
            break;
        }
    }
    found
}

/// Whether the other servers have room for some units of a server. The largest units are placed first, because they are
/// the hardest. `without` is a unit that leaves its server anyway.
pub(crate) fn others_have_room(
    policy: &Policy,
    view: &View,
    from: NodeId,
    units: &[&Unit],
    resource: Resource,
    terms: &Terms,
    without: Option<(NodeId, &Unit)>,
) -> bool {
    let mut coming: BTreeMap<NodeId, PerResource<f64>> = BTreeMap::new();
    if let Some((node, unit)) = without {
        add(coming.entry(node).or_default(), unit, -1.0);
    }
    let mut units = units.to_vec();
    units.sort_by(|one, other| {
        other.used[resource]
            .total_cmp(&one.used[resource])
            .then_with(|| one.lead.cmp(&other.lead))
    });
    units.into_iter().all(|unit| {
        let fullness = |server: &Server| {
            let extra = coming.get(&server.node()).copied().unwrap_or_default();
            let capacity = server.capacity(resource).unwrap_or(f64::INFINITY);
            (server.load[resource] + extra[resource] + unit.used[resource]) / capacity
        };
        let fits = |server: &&Server| {
            let extra = coming.get(&server.node()).copied().unwrap_or_default();
            server.node() != from && obstacle_with(policy, unit, server, terms, &extra).is_none()
        };
        let target = view
            .servers
            .values()
            .filter(fits)
            .min_by(|one, other| fullness(one).total_cmp(&fullness(other)))
            .map(Server::node);
        if let Some(target) = target {
            add(coming.entry(target).or_default(), unit, 1.0);
        }
        target.is_some()
    })
}

fn add(sum: &mut PerResource<f64>, unit: &Unit, times: f64) {
    for resource in Resource::ALL {
        sum[resource] += times * unit.used[resource];
    }
}

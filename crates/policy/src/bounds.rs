//! The bounds of a `balance`, derived from its rule's condition.

use elastin_types::Resource;

use crate::{Atom, Behaviour, Condition, Feature, Statistic};

/// The behaviours with the bounds that the condition names: `server.r.perc > U` is the upper, `< L` the lower one.
pub(crate) fn with_bounds(mut behaviours: Vec<Behaviour>, condition: &Condition, atoms: &[Atom]) -> Vec<Behaviour> {
    for behaviour in &mut behaviours {
        if let Behaviour::Balance(balance) = behaviour {
            balance.upper = bound(condition, atoms, balance.resource, true);
            balance.lower = bound(condition, atoms, balance.resource, false);
        }
    }
    behaviours
}

/// The upper or the lower bound. Of several joined by `or`, the one that is crossed first counts; by `and`, the last.
fn bound(condition: &Condition, atoms: &[Atom], resource: Resource, upper: bool) -> Option<f64> {
    let bounds = |parts: &[Condition], first_crossed: bool| -> Option<f64> {
        let bounds = parts.iter().filter_map(|part| bound(part, atoms, resource, upper));
        // A server on its way up crosses the lowest upper bound first, on its way down the highest lower one.
        if upper == first_crossed {
            bounds.min_by(f64::total_cmp)
        } else {
            bounds.max_by(f64::total_cmp)
        }
    };
    match condition {
        Condition::True => None,
        Condition::Any(parts) => bounds(parts, true),
        Condition::All(parts) => bounds(parts, false),
        Condition::Atom(atom) => match &atoms[*atom] {
            Atom::Compare(comparison)
                if comparison.feature == Feature::Server(resource)
                    && comparison.statistic == Statistic::Perc
                    && comparison.comparator.wants_more() == upper =>
            {
                Some(comparison.value)
            }
            _ => None,
        },
    }
}

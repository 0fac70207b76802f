//! Arbitration among competing proposals for the same actors. A single arbiter keeps rules from working against each
//! other.

use std::cmp::Ordering;

use crate::{Change, Proposal, Purpose};

/// Sorts by highest priority, then earlier rule, higher score and lower actor id. Draining a server comes first: rules
/// cannot prevent it.
pub(crate) fn best_first(proposals: &mut [Proposal]) {
    proposals.sort_by(compare);
}

/// Whether one proposal wins over another.
pub(crate) fn is_better(one: &Proposal, other: &Proposal) -> bool {
    compare(one, other) == Ordering::Less
}

fn compare(one: &Proposal, other: &Proposal) -> Ordering {
    let drains = |proposal: &Proposal| {
        matches!(
            proposal.decision.change,
            Change::Move {
                purpose: Purpose::Drain,
                ..
            }
        )
    };
    let rule = |proposal: &Proposal| proposal.decision.cause.as_ref().map_or(usize::MAX, |cause| cause.rule);
    drains(other)
        .cmp(&drains(one))
        .then(other.priority.cmp(&one.priority))
        .then(rule(one).cmp(&rule(other)))
        .then(other.score.total_cmp(&one.score))
        .then_with(|| one.decision.actor().cmp(&other.decision.actor()))
        .then(one.decision.id.cmp(&other.decision.id))
}

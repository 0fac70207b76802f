//! Connectivity of a rule's variables. Evaluation follows references and calls from one variable to the next, so it
//! never tries all pairs of actors.

use crate::disjunct::Disjunct;
use crate::{Atom, Behaviour, Rule};

/// Two variables that nothing connects in one alternative of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unconnected {
    pub(crate) alternative: Disjunct,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Whether the rule is between types (see [`Rule::between_types`]).
///
/// # Errors
/// Two variables that some alternative leaves unconnected, if the rule is not between types.
pub(crate) fn between_types(rule: &Rule, alternatives: &[Disjunct]) -> Result<bool, Unconnected> {
    let start = rule.subject.unwrap_or(0);
    for alternative in alternatives {
        let reached = reach(rule, alternative, start);
        if let Some(to) = (0..rule.variables.len()).find(|variable| !reached.contains(variable)) {
            let only_separate = matches!(rule.behaviours[..], [Behaviour::Separate(..)]);
            if only_separate && rule.variables.len() == 2 {
                return Ok(true);
            }
            return Err(Unconnected {
                alternative: alternative.clone(),
                from: start,
                to,
            });
        }
    }
    Ok(false)
}

/// The variables reachable from one over connecting atoms.
fn reach(rule: &Rule, alternative: &[usize], start: usize) -> Vec<usize> {
    let mut reached = vec![start];
    let mut next = 0;
    while let Some(from) = reached.get(next).copied() {
        next += 1;
        for (one, other) in alternative.iter().filter_map(|atom| Atom::connects(&rule.atoms[*atom])) {
            for (here, there) in [(one, other), (other, one)] {
                if here == from && !reached.contains(&there) {
                    reached.push(there);
                }
            }
        }
    }
    reached
}

//! Whether a rule's variables are connected, so that evaluation can follow references and calls from one to the other and
//! never has to try all pairs of actors.

use crate::disjunct::Disjunct;
use crate::{Atom, Behaviour, Rule};

/// Two variables that nothing connects in one alternative of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unconnected {
    pub(crate) alternative: Disjunct,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Whether the rule is one between types (see [`Rule::between_types`]); false if it is an ordinary one.
///
/// # Errors
/// If it is neither: in some alternative its variables are not connected.
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

/// The variables that can be reached from one over connecting atoms.
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

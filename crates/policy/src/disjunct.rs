//! A condition as a list of alternatives, each a set of atoms that must all hold.

use crate::Condition;

/// Maximum number of alternatives of a condition. Each is planned, joined and analysed separately, so their number
/// bounds the work for a rule.
pub const ALTERNATIVES_MAX: usize = 256;

/// One alternative: the atoms that must all hold, by index, ascending.
pub(crate) type Disjunct = Vec<usize>;

/// A condition multiplies out to more than [`ALTERNATIVES_MAX`] alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyAlternatives;

/// The alternatives of a condition, without repetitions.
pub(crate) fn disjuncts(condition: &Condition) -> Result<Vec<Disjunct>, TooManyAlternatives> {
    match condition {
        Condition::True => Ok(vec![vec![]]),
        Condition::Atom(atom) => Ok(vec![vec![*atom]]),
        Condition::Any(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(disjuncts(part)?);
                all = distinct(all)?;
            }
            Ok(all)
        }
        Condition::All(parts) => {
            let mut all = vec![vec![]];
            for part in parts {
                all = distinct(multiply(&all, &disjuncts(part)?))?;
            }
            Ok(all)
        }
    }
}

/// Both sides are at most [`ALTERNATIVES_MAX`] long, so the product is bounded too.
fn multiply(left: &[Disjunct], right: &[Disjunct]) -> Vec<Disjunct> {
    left.iter()
        .flat_map(|one| {
            right.iter().map(move |other| {
                let mut both: Disjunct = one.iter().chain(other).copied().collect();
                both.sort_unstable();
                both.dedup();
                both
            })
        })
        .collect()
}

fn distinct(mut all: Vec<Disjunct>) -> Result<Vec<Disjunct>, TooManyAlternatives> {
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|disjunct| seen.insert(disjunct.clone()));
    if all.len() > ALTERNATIVES_MAX {
        return Err(TooManyAlternatives);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_sums_becomes_a_sum_of_products() {
        let either = |left, right| Condition::Any(vec![Condition::Atom(left), Condition::Atom(right)]);
        let condition = Condition::All(vec![either(0, 1), either(1, 2)]);
        assert_eq!(
            disjuncts(&condition),
            Ok(vec![vec![0, 1], vec![0, 2], vec![1], vec![1, 2]])
        );
    }

    #[test]
    fn an_explosion_is_refused() {
        let either = |left: usize| Condition::Any(vec![Condition::Atom(left), Condition::Atom(left + 1)]);
        let condition = Condition::All((0..9).map(|index| either(2 * index)).collect());
        assert_eq!(disjuncts(&condition), Err(TooManyAlternatives));
    }
}

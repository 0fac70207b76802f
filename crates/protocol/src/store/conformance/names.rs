//! Bindings of a script's symbolic names.

use std::collections::BTreeMap;

/// Bindings of a script's names to the numbers of an implementation.
///
/// INVARIANT: a higher name is bound to a higher number.
#[derive(Debug, Default)]
pub(super) struct Names {
    bound: BTreeMap<u64, u64>,
}

impl Names {
    /// The number that a name stands for.
    ///
    /// # Panics
    /// If no reply has bound the name: the script is wrong.
    pub(super) fn number(&self, name: u64) -> u64 {
        match self.bound.get(&name) {
            Some(number) => *number,
            None => panic!("the script uses the name {name} before a reply has bound it"),
        }
    }

    /// Binds a name to a number. Returns false if that contradicts an earlier binding.
    pub(super) fn bind(&mut self, name: u64, number: u64) -> bool {
        if let Some(bound) = self.bound.get(&name) {
            return *bound == number;
        }
        let below = self.bound.range(..name).next_back();
        let above = self.bound.range(name..).next();
        let fits = below.is_none_or(|(_, below)| *below < number) && above.is_none_or(|(_, above)| number < *above);
        if fits {
            self.bound.insert(name, number);
        }
        fits
    }

    /// Binds a list of names. Returns whether all fit.
    pub(super) fn bind_all(&mut self, names: &[u64], numbers: &[u64]) -> bool {
        names.len() == numbers.len()
            && names
                .iter()
                .zip(numbers)
                .all(|(name, number)| self.bind(*name, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers_and_their_order() {
        let mut names = Names::default();
        assert!(names.bind(1, 10));
        assert!(names.bind(3, 30));
        assert!(names.bind(1, 10));
        assert!(!names.bind(1, 11));
        assert!(!names.bind(2, 30));
        assert!(!names.bind(2, 9));
        assert!(names.bind(2, 20));
        assert_eq!(names.number(2), 20);
    }
}

//! A hash index of positions in an array.

use hashbrown::HashTable;

/// A hash index of positions in an array. Positions take two bytes while there are few entries.
#[derive(Debug)]
pub(crate) enum Positions {
    Few(HashTable<u16>),
    Many(HashTable<u32>),
}

impl Default for Positions {
    fn default() -> Self {
        Positions::Few(HashTable::new())
    }
}

impl Positions {
    /// The position of the entry with this hash that `is_match` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        match self {
            Positions::Few(table) => table
                .find(hash, |at| is_match(usize::from(*at)))
                .map(|at| usize::from(*at)),
            Positions::Many(table) => table.find(hash, |at| is_match(*at as usize)).map(|at| *at as usize),
        }
    }

    /// Adds the position of a new entry with this hash.
    ///
    /// # Panics
    /// With more than 2³² entries.
    pub(crate) fn insert(&mut self, hash: u64, position: usize, hash_of: impl Fn(usize) -> u64) {
        if let Positions::Few(table) = self {
            match u16::try_from(position) {
                Ok(position) => {
                    table.insert_unique(hash, position, |at| hash_of(usize::from(*at)));
                    return;
                }
                Err(_) => self.widen(&hash_of),
            }
        }
        if let Positions::Many(table) = self {
            let position = u32::try_from(position).expect("a node has fewer than 2³² actors");
            table.insert_unique(hash, position, |at| hash_of(*at as usize));
        }
    }

    /// Removes the position of the entry with this hash.
    pub(crate) fn remove(&mut self, hash: u64, position: usize) {
        let removed = match self {
            Positions::Few(table) => {
                let found = table.find_entry(hash, |at| usize::from(*at) == position);
                found.is_ok_and(|entry| usize::from(entry.remove().0) == position)
            }
            Positions::Many(table) => {
                let found = table.find_entry(hash, |at| *at as usize == position);
                found.is_ok_and(|entry| entry.remove().0 as usize == position)
            }
        };
        assert!(removed, "every entry has a position");
    }

    /// Updates the position of an entry that moved to a lower one.
    pub(crate) fn change(&mut self, hash: u64, before: usize, after: usize) {
        let changed = match self {
            Positions::Few(table) => {
                let found = table.find_mut(hash, |at| usize::from(*at) == before);
                found.map(|at| *at = after as u16)
            }
            Positions::Many(table) => {
                let found = table.find_mut(hash, |at| *at as usize == before);
                found.map(|at| *at = after as u32)
            }
        };
        assert!(changed.is_some(), "every entry has a position");
    }

    /// The allocated bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Positions::Few(table) => table.allocation_size(),
            Positions::Many(table) => table.allocation_size(),
        }
    }

    #[cold]
    fn widen(&mut self, hash_of: impl Fn(usize) -> u64) {
        let Positions::Few(few) = self else { return };
        let mut many = HashTable::with_capacity(few.len() + 1);
        for &at in &*few {
            many.insert_unique(hash_of(usize::from(at)), u32::from(at), |at| hash_of(*at as usize));
        }
        *self = Positions::Many(many);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_in_both_widths() {
        let hash_of = |position: usize| (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut positions = Positions::default();
        let many = usize::from(u16::MAX) + 1000;
        for position in 0..many {
            positions.insert(hash_of(position), position, hash_of);
        }
        assert!(matches!(positions, Positions::Many(_)));
        for position in 0..many {
            assert_eq!(positions.find(hash_of(position), |at| at == position), Some(position));
        }
        positions.remove(hash_of(3), 3);
        positions.change(hash_of(many - 1), many - 1, 3);
        assert_eq!(positions.find(hash_of(many - 1), |_| true), Some(3));
        assert_eq!(positions.find(hash_of(3), |_| true), None);
    }
}

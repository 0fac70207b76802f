//! A map that wastes little memory: the directory of a large cluster has millions of entries, and so may a host.
//!
//! Entries lie side by side in an array that grows by an eighth, and a hash table holds their positions, in four bytes each.
//! An ordinary hash map holds the entries themselves, and up to half of it is empty.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashTable};

/// The array grows by this part of its length, so that adding stays cheap on average and little is empty.
const GROWTH_DIVISOR: usize = 8;
/// And by at least so many entries.
const GROWTH_MIN: usize = 4;

/// A map from keys to values, in no particular but always the same order.
#[derive(Debug)]
pub(crate) struct CompactMap<Key, Value> {
    positions: HashTable<u32>,
    entries: Vec<(Key, Value)>,
}

impl<Key, Value> Default for CompactMap<Key, Value> {
    fn default() -> Self {
        Self {
            positions: HashTable::new(),
            entries: Vec::new(),
        }
    }
}

fn hash(key: &impl Hash) -> u64 {
    FixedState::default().hash_one(key)
}

impl<Key: Hash + Eq, Value> CompactMap<Key, Value> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn position(&self, key: &(impl Hash + Equivalent<Key>)) -> Option<usize> {
        let is_it = |position: &u32| key.equivalent(&self.entries[*position as usize].0);
        self.positions.find(hash(key), is_it).map(|position| *position as usize)
    }

    pub(crate) fn get(&self, key: &(impl Hash + Equivalent<Key>)) -> Option<&Value> {
        self.position(key).map(|position| &self.entries[position].1)
    }

    pub(crate) fn get_mut(&mut self, key: &(impl Hash + Equivalent<Key>)) -> Option<&mut Value> {
        self.position(key).map(|position| &mut self.entries[position].1)
    }

    /// Sets the value of a key.
    ///
    /// # Panics
    /// With more than 2³² entries.
    pub(crate) fn insert(&mut self, key: Key, value: Value) {
        if let Some(known) = self.get_mut(&key) {
            *known = value;
            return;
        }
        let length = self.entries.len();
        if length == self.entries.capacity() {
            self.entries.reserve_exact(GROWTH_MIN.max(length / GROWTH_DIVISOR));
        }
        let position = u32::try_from(length).expect("a node has fewer than 2³² actors");
        let entries = &self.entries;
        self.positions
            .insert_unique(hash(&key), position, |position| hash(&entries[*position as usize].0));
        self.entries.push((key, value));
    }

    pub(crate) fn remove(&mut self, key: &(impl Hash + Equivalent<Key>)) -> Option<Value> {
        let position = self.position(key)?;
        Some(self.remove_at(position))
    }

    fn remove_at(&mut self, position: usize) -> Value {
        let its_hash = hash(&self.entries[position].0);
        let found = self.positions.find_entry(its_hash, |at| *at as usize == position);
        found.expect("every entry has a position").remove();
        let last = self.entries.len() - 1;
        if position != last {
            // The last entry takes the free place.
            let last_hash = hash(&self.entries[last].0);
            let moved = self.positions.find_mut(last_hash, |at| *at as usize == last);
            *moved.expect("every entry has a position") = position as u32;
        }
        self.entries.swap_remove(position).1
    }

    /// Keeps those entries of whose values this is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        // From the end, so that an entry that takes a free place has been looked at.
        for position in (0..self.entries.len()).rev() {
            if !keep(&self.entries[position].1) {
                self.remove_at(position);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The bytes that it takes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        self.positions.allocation_size() + self.entries.capacity() * size_of::<(Key, Value)>()
    }
}

impl<Key, Value> IntoIterator for CompactMap<Key, Value> {
    type Item = (Key, Value);
    type IntoIter = std::vec::IntoIter<(Key, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_does_what_a_map_does() {
        let (mut ours, mut theirs) = (CompactMap::default(), BTreeMap::new());
        let mut number = 1_u64;
        for step in 0..20_000_u64 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = (number >> 33) % 500;
            match number % 3 {
                0 => assert_eq!(ours.remove(&key), theirs.remove(&key)),
                _ if step % 1000 == 999 => {
                    ours.retain(|value| value % 7 != 0);
                    theirs.retain(|_, value| *value % 7 != 0);
                }
                _ => {
                    ours.insert(key, step);
                    theirs.insert(key, step);
                }
            }
            assert_eq!((ours.get(&key), ours.len()), (theirs.get(&key), theirs.len()));
        }
        assert_eq!(ours.into_iter().collect::<BTreeMap<_, _>>(), theirs);
    }

    #[test]
    fn it_wastes_little_at_any_size() {
        let mut map: CompactMap<[u64; 4], [u64; 3]> = CompactMap::default();
        for key in 0..5000 {
            map.insert([key; 4], [0; 3]);
            let each = map.bytes() / map.len();
            assert!(
                map.len() < 64 || each <= 32 + 64,
                "{each} bytes per entry at {}",
                map.len()
            );
        }
    }
}

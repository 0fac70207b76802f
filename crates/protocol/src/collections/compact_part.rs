//! A part of a [`CompactMap`](crate::collections::compact_map::CompactMap).
//!
//! A standard map would rehash all its entries within one insertion.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashTable};

/// A dense array of entries, and a hash table of their positions.
#[derive(Debug)]
pub(crate) struct Part<Key, Value> {
    positions: HashTable<u32>,
    entries: Vec<(Key, Value)>,
}

impl<Key, Value> Default for Part<Key, Value> {
    fn default() -> Self {
        Self {
            positions: HashTable::new(),
            entries: Vec::new(),
        }
    }
}

/// The hash of a key, or of its borrowed form.
#[inline]
pub(super) fn hash_of(key: &impl Hash) -> u64 {
    FixedState::default().hash_one(key)
}

impl<Key: Hash + Eq, Value> Part<Key, Value> {
    fn position(&self, hash: u64, key: &impl Equivalent<Key>) -> Option<usize> {
        let is_match = |position: &u32| key.equivalent(&self.entries[*position as usize].0);
        self.positions.find(hash, is_match).map(|position| *position as usize)
    }

    pub(super) fn get(&self, hash: u64, key: &impl Equivalent<Key>) -> Option<&Value> {
        self.position(hash, key).map(|position| &self.entries[position].1)
    }

    pub(super) fn get_mut(&mut self, hash: u64, key: &impl Equivalent<Key>) -> Option<&mut Value> {
        self.position(hash, key).map(|position| &mut self.entries[position].1)
    }

    /// Adds an absent key.
    ///
    /// # Panics
    /// With more than 2³² entries.
    pub(super) fn add(&mut self, hash: u64, key: Key, value: Value) {
        let entries = &self.entries;
        let position = u32::try_from(entries.len()).expect("a node has fewer than 2³² actors");
        self.positions
            .insert_unique(hash, position, |at| hash_of(&entries[*at as usize].0));
        self.entries.push((key, value));
    }

    pub(super) fn remove(&mut self, hash: u64, key: &impl Equivalent<Key>) -> Option<Value> {
        let position = self.position(hash, key)?;
        Some(self.remove_at(position))
    }

    fn remove_at(&mut self, position: usize) -> Value {
        let hash = hash_of(&self.entries[position].0);
        let found = self.positions.find_entry(hash, |at| *at as usize == position);
        let (removed, _) = found.expect("every entry has a position").remove();
        let last = self.entries.len() - 1;
        if position != last {
            // The last entry moves into the gap.
            let hash = hash_of(&self.entries[last].0);
            let moved = self.positions.find_mut(hash, |at| *at as usize == last);
            *moved.expect("every entry has a position") = removed;
        }
        self.entries.swap_remove(position).1
    }

    /// Keeps the entries for whose values `keep` returns true.
    pub(super) fn retain(&mut self, keep: &mut impl FnMut(&Value) -> bool) {
        // In reverse, so that an entry that moves into a gap has already been checked.
        for position in (0..self.entries.len()).rev() {
            if !keep(&self.entries[position].1) {
                self.remove_at(position);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The allocated bytes, keys included.
    pub(super) fn bytes(&self) -> usize {
        self.positions.allocation_size() + self.entries.capacity() * size_of::<(Key, Value)>()
    }
}

impl<Key, Value> IntoIterator for Part<Key, Value> {
    type Item = (Key, Value);
    type IntoIter = std::vec::IntoIter<(Key, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

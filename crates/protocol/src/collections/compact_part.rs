//! A part of a [`CompactMap`](crate::collections::compact_map::CompactMap).

use hashbrown::Equivalent;

use crate::collections::compact_map::HashOnce;
use crate::collections::positions::Positions;

/// The array grows by this fraction of its length: insertion stays amortized O(1), and little capacity is unused.
const GROWTH_DIVISOR: usize = 8;
/// The array grows by at least this many entries.
const GROWTH_MIN: usize = 4;

/// A dense array of entries that grows by an eighth, and a hash table of their positions.
#[derive(Debug)]
pub(crate) struct Part<Key, Value> {
    positions: Positions,
    entries: Vec<(Key, Value)>,
}

impl<Key, Value> Default for Part<Key, Value> {
    fn default() -> Self {
        Self {
            positions: Positions::default(),
            entries: Vec::new(),
        }
    }
}

impl<Key: HashOnce + Eq, Value> Part<Key, Value> {
    fn position(&self, hash: u64, key: &impl Equivalent<Key>) -> Option<usize> {
        let is_match = |position: usize| key.equivalent(&self.entries[position].0);
        self.positions.find(hash, is_match)
    }

    pub(crate) fn get(&self, hash: u64, key: &impl Equivalent<Key>) -> Option<&Value> {
        self.position(hash, key).map(|position| &self.entries[position].1)
    }

    pub(crate) fn get_mut(&mut self, hash: u64, key: &impl Equivalent<Key>) -> Option<&mut Value> {
        self.position(hash, key).map(|position| &mut self.entries[position].1)
    }

    /// Adds an absent key.
    pub(crate) fn add(&mut self, hash: u64, key: Key, value: Value) {
        let length = self.entries.len();
        if length == self.entries.capacity() {
            self.entries.reserve_exact(GROWTH_MIN.max(length / GROWTH_DIVISOR));
        }
        let entries = &self.entries;
        self.positions.insert(hash, length, |at| entries[at].0.hash_once());
        self.entries.push((key, value));
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &impl Equivalent<Key>) -> Option<Value> {
        let position = self.position(hash, key)?;
        Some(self.remove_at(position))
    }

    fn remove_at(&mut self, position: usize) -> Value {
        self.positions.remove(self.entries[position].0.hash_once(), position);
        let last = self.entries.len() - 1;
        if position != last {
            // The last entry moves into the gap.
            self.positions.change(self.entries[last].0.hash_once(), last, position);
        }
        self.entries.swap_remove(position).1
    }

    /// Keeps the entries for whose values `keep` returns true.
    pub(crate) fn retain(&mut self, keep: &mut impl FnMut(&Value) -> bool) {
        // In reverse, so that an entry that moves into a gap has already been checked.
        for position in (0..self.entries.len()).rev() {
            if !keep(&self.entries[position].1) {
                self.remove_at(position);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// The allocated bytes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        self.positions.bytes() + self.entries.capacity() * size_of::<(Key, Value)>()
    }
}

impl<Key, Value> IntoIterator for Part<Key, Value> {
    type Item = (Key, Value);
    type IntoIter = std::vec::IntoIter<(Key, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

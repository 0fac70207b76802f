//! A compact hash map: the directory of a large cluster has millions of entries, and so may a host.
//!
//! Entries are stored densely in arrays. Hash tables hold their positions, in four bytes each. An ordinary hash map
//! stores the entries in the table itself, up to half of which is empty.
//!
//! A large map is split into parts, so that an insertion rehashes at most one part. The parts differ in size, so that
//! their hash tables do not all double at the same time.

use std::hash::Hash;

use hashbrown::Equivalent;

use super::compact_part::{Part, hash_of};

/// Number of parts of a large map.
const PARTS: usize = 64;
/// The most entries of a map with a single part.
const UNPARTED_MAX: usize = 16 * 1024;

/// A map from keys to values, iterated in an unspecified but deterministic order.
#[derive(Debug)]
pub(crate) struct CompactMap<Key, Value> {
    /// Zero, one or [`PARTS`] parts.
    parts: Vec<Part<Key, Value>>,
    length: usize,
}

impl<Key, Value> Default for CompactMap<Key, Value> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            length: 0,
        }
    }
}

/// The part of a large map that a hash belongs to. The last part gets about twice as many entries as the first.
fn part_of(hash: u64) -> usize {
    // Uses the middle bits: hash tables use the top seven and the low ones.
    let (one, other, choice) = (hash >> 32, hash >> 38, hash >> 44);
    let (one, other) = (one as usize % PARTS, other as usize % PARTS);
    match choice % 3 {
        0 => one.max(other),
        _ => one,
    }
}

impl<Key: Hash + Eq, Value> CompactMap<Key, Value> {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    fn part(&self, hash: u64) -> Option<&Part<Key, Value>> {
        match &self.parts[..] {
            [] => None,
            [all] => Some(all),
            parts => Some(&parts[part_of(hash)]),
        }
    }

    #[inline]
    fn part_mut(&mut self, hash: u64) -> Option<&mut Part<Key, Value>> {
        match &mut self.parts[..] {
            [] => None,
            [all] => Some(all),
            parts => Some(&mut parts[part_of(hash)]),
        }
    }

    pub(crate) fn get(&self, key: &(impl Hash + Equivalent<Key>)) -> Option<&Value> {
        let hash = hash_of(key);
        self.part(hash)?.get(hash, key)
    }

    pub(crate) fn get_mut(&mut self, key: &(impl Hash + Equivalent<Key>)) -> Option<&mut Value> {
        let hash = hash_of(key);
        self.part_mut(hash)?.get_mut(hash, key)
    }

    /// Sets the value of a key.
    ///
    /// # Panics
    /// With more than 2³² entries.
    pub(crate) fn insert(&mut self, key: Key, value: Value) {
        let hash = hash_of(&key);
        if let Some(known) = self.part_mut(hash).and_then(|part| part.get_mut(hash, &key)) {
            *known = value;
            return;
        }
        self.ensure_parts();
        self.length += 1;
        let part = self.part_mut(hash).expect("there are parts for one more entry");
        part.add(hash, key, value);
    }

    /// Splits the map if one more entry requires it.
    fn ensure_parts(&mut self) {
        let wanted = match self.length < UNPARTED_MAX {
            true => 1,
            false => PARTS,
        };
        if self.parts.len() >= wanted {
            return;
        }
        let before = std::mem::take(&mut self.parts);
        self.parts.reserve_exact(wanted);
        self.parts.resize_with(wanted, Part::default);
        for (key, value) in before.into_iter().flatten() {
            let hash = hash_of(&key);
            let part = self.part_mut(hash).expect("the parts were just created");
            part.add(hash, key, value);
        }
    }

    pub(crate) fn remove(&mut self, key: &(impl Hash + Equivalent<Key>)) -> Option<Value> {
        let hash = hash_of(key);
        let removed = self.part_mut(hash)?.remove(hash, key)?;
        self.length -= 1;
        Some(removed)
    }

    /// Keeps the entries for whose values `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.parts.iter_mut().for_each(|part| part.retain(&mut keep));
        self.length = self.parts.iter().map(Part::len).sum();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.parts.iter().flat_map(Part::iter)
    }

    /// The allocated bytes, keys included.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(Part::bytes).sum::<usize>();
        parts + self.parts.capacity() * size_of::<Part<Key, Value>>()
    }
}

impl<Key, Value> IntoIterator for CompactMap<Key, Value> {
    type Item = (Key, Value);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Part<Key, Value>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Applies the same random operations to a compact and a B-tree map.
    fn compare(keys: u64, steps: u64) {
        let (mut ours, mut theirs) = (CompactMap::default(), BTreeMap::new());
        let mut number = 1_u64;
        for step in 0..steps {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = (number >> 33) % keys;
            match number >> 20 & 3 {
                0 => assert_eq!(ours.remove(&key), theirs.remove(&key)),
                _ if step % (steps / 4) == 0 => {
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
        let seen: BTreeMap<u64, u64> = ours.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(seen, theirs);
        assert_eq!(ours.into_iter().collect::<BTreeMap<_, _>>(), theirs);
    }

    #[test]
    fn behaves_like_a_btree_map_with_one_part() {
        compare(500, 20_000);
    }

    #[test]
    fn behaves_like_a_btree_map_with_many_parts() {
        compare(3 * UNPARTED_MAX as u64, 400_000);
    }

    #[test]
    fn part_sizes_differ_by_up_to_a_factor_of_two() {
        let mut sizes = [0_u32; PARTS];
        (0..1_000_000_u64).for_each(|key| sizes[part_of(hash_of(&key))] += 1);
        assert!(sizes[0] * 19 / 10 < sizes[PARTS - 1], "{sizes:?}");
        assert!(sizes[PARTS - 1] < sizes[0] * 21 / 10, "{sizes:?}");
        assert!(
            sizes.iter().all(|size| *size < 1_000_000 / PARTS as u32 * 3 / 2),
            "{sizes:?}"
        );
    }

    #[test]
    fn bytes_per_entry_of_a_large_map_are_bounded() {
        let mut map: CompactMap<u64, u64> = CompactMap::default();
        for key in 0..300_000 {
            map.insert(key, 0);
            let each = map.bytes() as f64 / map.len() as f64;
            // Were all parts of the same size, there would be up to 32 bytes of array and 11 of positions.
            assert!(
                map.len() < 40_000 || each < 34.0,
                "{each} bytes per entry at {}",
                map.len()
            );
        }
    }

    #[test]
    fn bytes_per_entry_are_bounded_at_any_size() {
        let mut map: CompactMap<[u64; 4], [u64; 3]> = CompactMap::default();
        for key in 0..5000 {
            map.insert([key; 4], [0; 3]);
            let each = map.bytes() / map.len();
            assert!(
                map.len() < 64 || each <= 2 * 56 + 12,
                "{each} bytes per entry at {}",
                map.len()
            );
        }
    }
}

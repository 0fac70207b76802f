//! The heaviest entries of a stream, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient computation of
//! frequent and top-k elements in data streams", 2005).
//!
//! When the table is full, a new key replaces the lightest one and inherits its count. So counts can be too high by at
//! most the lightest count, and their sum is always exact.

use crate::tuning::EDGES_MAX;

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry<K, T> {
    pub(crate) key: K,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// Data about the key, as of its last occurrence.
    pub(crate) tag: T,
}

/// The heaviest keys of a stream.
#[derive(Clone, Debug)]
pub(crate) struct HeavyHitters<K, T> {
    entries: Vec<Entry<K, T>>,
}

impl<K, T> Default for HeavyHitters<K, T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: PartialEq, T> HeavyHitters<K, T> {
    /// Counts `count` occurrences of a key. `same` compares it with a known one, so that a key is only built when it is new.
    pub(crate) fn add(&mut self, same: impl Fn(&K) -> bool, make: impl FnOnce() -> K, count: u64, bytes: u64, tag: T) {
        if let Some(known) = self.entries.iter_mut().find(|entry| same(&entry.key)) {
            known.count += count;
            known.bytes += bytes;
            known.tag = tag;
            return;
        }
        let new = Entry {
            key: make(),
            count,
            bytes,
            tag,
        };
        if self.entries.len() < EDGES_MAX {
            self.entries.push(new);
            return;
        }
        let lightest = self.entries.iter_mut().min_by_key(|entry| entry.count);
        let lightest = lightest.expect("a full table has entries");
        lightest.key = new.key;
        lightest.tag = new.tag;
        lightest.count += new.count;
        lightest.bytes += new.bytes;
    }

    /// The entries, in no order.
    pub(crate) fn into_entries(self) -> Vec<Entry<K, T>> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(stream: impl IntoIterator<Item = u32>) -> Vec<Entry<u32, ()>> {
        let mut table = HeavyHitters::default();
        for key in stream {
            table.add(|known| *known == key, || key, 1, 10, ());
        }
        table.into_entries()
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let entries = count([1, 2, 1, 1]);
        assert_eq!(
            entries.iter().map(|entry| (entry.key, entry.count)).collect::<Vec<_>>(),
            [(1, 3), (2, 1)]
        );
        assert_eq!(entries[0].bytes, 30);
    }

    /// Counts a stream and compares the table with exact counts.
    fn check(stream: Vec<u32>) {
        let length = stream.len() as u64;
        let mut exact = std::collections::BTreeMap::<u32, u64>::new();
        stream.iter().for_each(|key| *exact.entry(*key).or_default() += 1);
        let entries = count(stream);
        assert_eq!(
            entries.iter().map(|entry| entry.count).sum::<u64>(),
            length,
            "the sum must be exact"
        );
        let error_max = length / EDGES_MAX as u64;
        for entry in &entries {
            let exact = exact[&entry.key];
            assert!(entry.count >= exact, "too low: {entry:?}, exact {exact}");
            assert!(entry.count - exact <= error_max, "too high: {entry:?}, exact {exact}");
        }
        for (key, count) in exact.into_iter().filter(|(_, count)| *count > error_max) {
            assert!(
                entries.iter().any(|entry| entry.key == key),
                "{key} occurred {count} times and is missing"
            );
        }
    }

    /// Pseudo-random numbers below 2³² (a linear congruential generator).
    fn random(count: usize) -> impl Iterator<Item = u32> {
        let mut state = 7_u64;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 32) as u32
        })
        .take(count)
    }

    #[test]
    fn a_uniform_stream_stays_within_the_bound() {
        for keys in [10, 32, 33, 100, 10_000] {
            check(random(50_000).map(|number| number % keys).collect());
        }
    }

    #[test]
    fn a_skewed_stream_stays_within_the_bound() {
        // Key k occurs about 1/k as often: a few callers make most of the calls.
        let skewed = |keys: f64| move |number: u32| keys.powf(f64::from(number) / f64::from(u32::MAX)) as u32;
        for keys in [40.0, 1000.0, 100_000.0] {
            check(random(50_000).map(skewed(keys)).collect());
        }
    }

    #[test]
    fn the_heaviest_stays_among_keys_that_never_repeat() {
        check((1..=1000).flat_map(|key| [0, key]).collect());
        check((1..=1000).chain(std::iter::repeat_n(0, 1000)).collect());
    }
}

//! The heaviest entries of a stream, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient computation of
//! frequent and top-k elements in data streams", 2005).
//!
//! When the table is full, a new key takes the place and the count of the lightest one. Counts can so be too high by at most
//! the lightest count, and their sum is always exact.

/// How many entries a table has: more partners than a rule is likely to tell apart, few enough to search one by one.
const ENTRIES_MAX: usize = 32;

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry<K, T> {
    pub(crate) key: K,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// What is known of the key, as of its last occurrence.
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
        if self.entries.len() < ENTRIES_MAX {
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

    #[test]
    fn the_sum_is_exact_and_the_heaviest_stays() {
        // Key 0 is half of the stream; the other half never repeats.
        let stream = (1..=1000).flat_map(|key| [0, key]);
        let entries = count(stream);
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), 2000);
        assert_eq!(entries.iter().max_by_key(|entry| entry.count).unwrap().key, 0);
    }
}

//! Many short lists in one: the entries of all rows behind each other, and where each row begins.

/// Entries by row.
pub(crate) struct Rows<T> {
    starts: Vec<u32>,
    entries: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self {
            starts: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<T: Copy> Rows<T> {
    /// Puts entries into their rows; within a row they keep their order.
    ///
    /// # Panics
    /// If an entry belongs to a row that there is not, or there are 2³² entries.
    pub(crate) fn new(rows: usize, entries: &[(u32, T)]) -> Self {
        assert!(u32::try_from(entries.len()).is_ok(), "fewer than 2^32 entries");
        let mut starts = vec![0_u32; rows + 1];
        for (row, _) in entries {
            starts[*row as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut places = vec![0_u32; entries.len()];
        for (index, (row, _)) in (0_u32..).zip(entries) {
            let place = &mut next[*row as usize];
            places[*place as usize] = index;
            *place += 1;
        }
        Self {
            starts,
            entries: places.iter().map(|index| entries[*index as usize].1).collect(),
        }
    }

    /// Puts entries into their rows, ordered by a key; entries of a row with the same key are merged.
    pub(crate) fn sorted<K: Ord>(
        rows: usize,
        entries: &[(u32, T)],
        key: impl Fn(&T) -> K,
        merge: impl Fn(&mut T, &T),
    ) -> Self {
        let mut plain = Self::new(rows, entries);
        let mut merged: Vec<T> = Vec::with_capacity(plain.entries.len());
        let mut starts = Vec::with_capacity(rows + 1);
        for row in 0..rows {
            starts.push(merged.len() as u32);
            let range = plain.starts[row] as usize..plain.starts[row + 1] as usize;
            let entries = &mut plain.entries[range];
            entries.sort_unstable_by_key(&key);
            let first = merged.len();
            for entry in entries.iter() {
                match merged[first..].last_mut() {
                    Some(last) if key(last) == key(entry) => merge(last, entry),
                    _ => merged.push(*entry),
                }
            }
        }
        starts.push(merged.len() as u32);
        Self {
            starts,
            entries: merged,
        }
    }

    /// The entries of a row; none if there is no such row.
    pub(crate) fn row(&self, row: usize) -> &[T] {
        match self.starts.get(row..row + 2) {
            Some([start, end]) => &self.entries[*start as usize..*end as usize],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_find_their_rows_in_order() {
        let rows = Rows::new(3, &[(2, 'a'), (0, 'b'), (2, 'c')]);
        assert_eq!(
            [rows.row(0), rows.row(1), rows.row(2), rows.row(3)],
            [&['b'][..], &[], &['a', 'c'], &[]]
        );
    }

    #[test]
    fn entries_with_the_same_key_merge_within_their_row() {
        let entries = [(1, (5, 1)), (0, (5, 2)), (1, (3, 4)), (1, (5, 8))];
        let rows = Rows::sorted(2, &entries, |entry| entry.0, |one, other| one.1 += other.1);
        assert_eq!((rows.row(0), rows.row(1)), (&[(5, 2)][..], &[(3, 4), (5, 9)][..]));
    }
}

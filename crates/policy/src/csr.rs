//! Compressed rows: the entries of all rows in one list, and the start of each row.

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
    /// Groups entries by row, keeping their order within a row. The entries are iterated twice.
    ///
    /// # Panics
    /// If an entry's row does not exist, or there are 2³² entries.
    pub(crate) fn new(rows: usize, entries: impl Iterator<Item = (u32, T)> + Clone) -> Self {
        let mut starts = vec![0_u32; rows + 1];
        let mut first = None;
        for (row, entry) in entries.clone() {
            first.get_or_insert(entry);
            starts[row as usize + 1] += 1;
        }
        let mut length = 0_u32;
        for start in &mut starts {
            length = length.checked_add(*start).expect("fewer than 2^32 entries");
            *start = length;
        }
        // The first entry serves as a placeholder.
        let mut placed = first.map_or_else(Vec::new, |entry| vec![entry; length as usize]);
        let mut next = starts.clone();
        for (row, entry) in entries {
            let place = &mut next[row as usize];
            placed[*place as usize] = entry;
            *place += 1;
        }
        Self {
            starts,
            entries: placed,
        }
    }

    /// Empty rows, with capacity for this many rows and entries.
    pub(crate) fn with_capacity(rows: usize, entries: usize) -> Self {
        Self {
            starts: [vec![0], Vec::with_capacity(rows)].concat(),
            entries: Vec::with_capacity(entries),
        }
    }

    /// Adds the next row, ordered by a key; entries with the same key are merged.
    pub(crate) fn push_row<K: Ord>(
        &mut self,
        row: impl Iterator<Item = T>,
        key: impl Fn(&T) -> K,
        merge: impl Fn(&mut T, &T),
    ) {
        let first = self.entries.len();
        self.entries.extend(row);
        let row = &mut self.entries[first..];
        row.sort_unstable_by_key(&key);
        let mut kept = 0;
        for index in 1..row.len() {
            let entry = row[index];
            if key(&row[kept]) == key(&entry) {
                merge(&mut row[kept], &entry);
            } else {
                kept += 1;
                row[kept] = entry;
            }
        }
        let length = if row.is_empty() { 0 } else { kept + 1 };
        self.entries.truncate(first + length);
        let end = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries");
        self.starts.push(end);
    }

    /// All entries with their rows, row by row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + Clone {
        let rows = (0_u32..).zip(self.starts.windows(2));
        rows.flat_map(|(row, ends)| {
            let entries = &self.entries[ends[0] as usize..ends[1] as usize];
            entries.iter().map(move |entry| (row, entry))
        })
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
        let rows = Rows::new(3, [(2, 'a'), (0, 'b'), (2, 'c')].into_iter());
        assert_eq!(
            [rows.row(0), rows.row(1), rows.row(2), rows.row(3)],
            [&['b'][..], &[], &['a', 'c'], &[]]
        );
    }

    #[test]
    fn entries_with_the_same_key_merge_within_their_row() {
        let mut rows = Rows::with_capacity(3, 4);
        for row in [&[(5, 2)][..], &[], &[(5, 1), (3, 4), (5, 8)]] {
            rows.push_row(row.iter().copied(), |entry| entry.0, |one, other| one.1 += other.1);
        }
        assert_eq!(
            [rows.row(0), rows.row(1), rows.row(2), rows.row(3)],
            [&[(5, 2)][..], &[], &[(3, 4), (5, 9)], &[]]
        );
        let all: Vec<(u32, i32)> = rows.iter().map(|(row, entry)| (row, entry.1)).collect();
        assert_eq!(all, [(0, 2), (2, 4), (2, 9)]);
    }
}

//! The cells that have something to report in this period, so that a snapshot need not look at the others.

use std::sync::Weak;

use parking_lot::Mutex;

use crate::cell::erased::ErasedCell;

/// How many parts the list has, so that threads rarely meet at one lock.
const SHARDS: usize = 16;

/// The cells that have something to report. A cell puts itself here when the first turn of a period is measured.
pub(crate) struct ActiveSet {
    shards: [Mutex<Vec<Weak<dyn ErasedCell>>>; SHARDS],
}

impl ActiveSet {
    pub(crate) fn new() -> Self {
        Self {
            shards: Default::default(),
        }
    }

    pub(crate) fn add(&self, cell: Weak<dyn ErasedCell>) {
        // Cells are larger than this and allocated one by one, so the address spreads them.
        let shard = (cell.as_ptr().cast::<()>() as usize >> 8) % SHARDS;
        self.shards[shard].lock().push(cell);
    }

    /// Takes all out, without holding a lock while they are looked at.
    pub(crate) fn drain(&self) -> impl Iterator<Item = Weak<dyn ErasedCell>> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()))
    }

    /// Forgets cells that are gone, in case nobody takes snapshots.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().retain(|cell| cell.strong_count() > 0);
        }
    }
}

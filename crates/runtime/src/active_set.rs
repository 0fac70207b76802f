//! The cells to report in this period, so that a snapshot can skip all others.

use std::sync::Weak;

use parking_lot::Mutex;

use crate::cell::erased::ErasedCell;
use crate::tuning::ACTIVE_SHARDS;

/// The cells to report. A cell registers when the first turn of a period is measured.
pub(crate) struct ActiveSet {
    shards: [Mutex<Vec<Weak<dyn ErasedCell>>>; ACTIVE_SHARDS],
}

impl ActiveSet {
    pub(crate) fn new() -> Self {
        Self {
            shards: Default::default(),
        }
    }

    pub(crate) fn add(&self, cell: Weak<dyn ErasedCell>) {
        // Cells are allocated individually, so their addresses spread over the shards.
        let shard = (cell.as_ptr().cast::<()>() as usize >> 8) % ACTIVE_SHARDS;
        self.shards[shard].lock().push(cell);
    }

    /// Takes all cells, without holding a lock while they are processed.
    pub(crate) fn drain(&self) -> impl Iterator<Item = Weak<dyn ErasedCell>> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()))
    }

    /// Removes dropped cells, in case no snapshots are taken.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().retain(|cell| cell.strong_count() > 0);
        }
    }
}

//! The cells to report in this period, so that a snapshot can skip all others.

use std::sync::Weak;

use parking_lot::Mutex;

use crate::cell::erased::ErasedCell;

/// The cells to report. A cell registers when the first turn of a period is measured.
#[derive(Default)]
pub(crate) struct ActiveSet(Mutex<Vec<Weak<dyn ErasedCell>>>);

impl ActiveSet {
    pub(crate) fn add(&self, cell: Weak<dyn ErasedCell>) {
        self.0.lock().push(cell);
    }

    /// Takes all cells.
    pub(crate) fn drain(&self) -> Vec<Weak<dyn ErasedCell>> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Removes dropped cells, in case no snapshots are taken.
    pub(crate) fn sweep(&self) {
        self.0.lock().retain(|cell| cell.strong_count() > 0);
    }
}

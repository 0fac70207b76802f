//! What is or is not so of a mailbox, a bit for each: there are very many mailboxes.

use std::sync::atomic::{AtomicU8, Ordering};

/// Something that is or is not so of a mailbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// There is an activation.
    Active = 1,
    /// The cell is in a run queue.
    Scheduled = 2,
    /// The turn that runs, or is about to be suspended, was woken.
    Woken = 4,
    /// A turn of a discarded activation still runs somewhere: a new activation waits for it to end.
    Orphan = 8,
    /// The activation was lost; its mail waits for where to go.
    Rerouting = 16,
    /// A turn waits for something, so that it is of no use to wait for the instance in a loop. Also looked at without the lock, as a
    /// hint.
    Suspended = 32,
}

/// What is so of a mailbox. An atomic, because it lies beside the lock under which it is changed: within, it would take eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Marks(AtomicU8);

impl Marks {
    #[inline]
    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.0.load(Ordering::Relaxed) & mark as u8 != 0
    }

    /// Sets a mark or takes it away; says whether it was set before. For those who have the lock.
    #[inline]
    pub(crate) fn set(&self, mark: Mark, is_so: bool) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let after = match is_so {
            true => before | mark as u8,
            false => before & !(mark as u8),
        };
        self.0.store(after, Ordering::Relaxed);
        before & mark as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_do_not_touch_each_other() {
        let all = [
            Mark::Active,
            Mark::Scheduled,
            Mark::Woken,
            Mark::Orphan,
            Mark::Rerouting,
            Mark::Suspended,
        ];
        let marks = Marks::default();
        for mark in all {
            assert!(!marks.set(mark, true));
            assert!(marks.set(mark, true));
        }
        for mark in all {
            assert!(marks.has(mark));
            assert!(marks.set(mark, false));
            assert!(!marks.has(mark));
        }
    }
}

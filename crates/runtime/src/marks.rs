//! What is or is not so of a mailbox, a bit for each: there are very many mailboxes.

/// Something that is or is not so of a mailbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// There is an activation.
    Active = 1,
    /// The seat is in a run queue.
    Scheduled = 2,
    /// The turn that runs, or is about to be suspended, was woken.
    Woken = 4,
    /// A turn of a discarded activation still runs somewhere: a new activation waits for it to end.
    Orphan = 8,
    /// The activation was lost; its mail waits for where to go.
    Rerouting = 16,
}

/// What is so of a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    #[inline]
    pub(crate) fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    /// Sets a mark or takes it away; says whether it was set before.
    #[inline]
    pub(crate) fn set(&mut self, mark: Mark, is_so: bool) -> bool {
        let before = self.has(mark);
        match is_so {
            true => self.0 |= mark as u8,
            false => self.0 &= !(mark as u8),
        }
        before
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
        ];
        let mut marks = Marks::default();
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

//! Where an activation keeps its profile.

use crossbeam_utils::atomic::AtomicCell;

use crate::profile_table::Profile;

/// A profile, if there is one. Whoever changes it takes it out meanwhile: almost always that is the one turn that runs, and a
/// lock would take more room in every actor.
#[derive(Default)]
pub(crate) struct ProfileCell(AtomicCell<Option<Box<Profile>>>);

impl ProfileCell {
    pub(crate) fn take(&self) -> Option<Box<Profile>> {
        self.0.take()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Profile) -> T) -> T {
        let mut profile = self.take().unwrap_or_default();
        let result = change(&mut profile);
        let mut other = self.0.swap(Some(profile));
        // Somebody else came with one of their own while this one was out.
        while let Some(theirs) = other {
            let mut merged = self.take().unwrap_or_default();
            merged.merge(*theirs);
            other = self.0.swap(Some(merged));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_two_change_it_at_once() {
        const TIMES: u64 = 10_000;
        let cell = ProfileCell::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..TIMES).for_each(|_| cell.change(|profile| profile.turns += 1)));
            }
        });
        assert_eq!(cell.take().map(|profile| profile.turns), Some(2 * TIMES));
    }
}

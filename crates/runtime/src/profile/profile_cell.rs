//! Lock-free holder of an activation's profile.

use crossbeam_utils::atomic::AtomicCell;

use crate::profile::table::Profile;

/// An activation's profile, if there is one. A writer takes it out meanwhile: almost always that is the only running
/// turn, and a lock would take more room in every cell.
#[derive(Default)]
pub(crate) struct ProfileCell(AtomicCell<Option<Box<Profile>>>);

impl ProfileCell {
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Profile) -> T) -> T {
        let mut profile = self.0.take().unwrap_or_default();
        let result = change(&mut profile);
        self.put(profile);
        result
    }

    /// Ends the activation: see [`Profile::activation_ended`].
    pub(crate) fn activation_ended(&self) {
        if let Some(mut profile) = self.0.take() {
            profile.activation_ended();
            self.put(profile);
        }
    }

    fn put(&self, profile: Box<Profile>) {
        let mut other = self.0.swap((!profile.is_empty()).then_some(profile));
        // Another thread put in its own profile while this one was out.
        while let Some(theirs) = other {
            let mut merged = self.0.take().unwrap_or_default();
            merged.merge(*theirs);
            other = self.0.swap(Some(merged));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_changes_are_merged() {
        const TIMES: u64 = 10_000;
        let cell = ProfileCell::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..TIMES).for_each(|_| cell.change(|profile| profile.tables(|| ()).turns += 1)));
            }
        });
        let tables = cell.change(Profile::end_period);
        assert_eq!(tables.map(|tables| tables.turns), Some(2 * TIMES));
        assert!(cell.0.take().is_none(), "an empty profile must be freed");
    }
}

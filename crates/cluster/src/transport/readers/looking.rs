//! Whether the thread that waits for sockets looks again and again for a moment before it sleeps.
//!
//! To sleep and to be woken takes tens of microseconds, most of them not on any core. If mail comes sooner than that, to look for
//! it is quicker and takes hardly more time of the processor; if it does not, looking is a waste. Which of both it is shows: after a
//! moment in vain the next ones are left out, more and more of them, until one pays again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::transport::caution::Caution;

/// How long it looks before it sleeps: about as long as it takes to be woken. Who waits for the next call of somebody who calls
/// again at once finds it in less.
pub(super) const LOOKS_FOR_MAX: Duration = Duration::from_micros(50);

/// One look takes a microsecond or two. What takes longer than this was somebody else's time on the same core.
const OWN_TIME_MAX: Duration = Duration::from_micros(10);

/// How much of the time that passed between two looks was this thread's.
pub(super) fn own_time(passed: Duration) -> Duration {
    match passed <= OWN_TIME_MAX {
        true => passed,
        false => Duration::ZERO,
    }
}

/// What one thread has learnt about looking.
#[derive(Default)]
pub(super) struct Looking {
    caution: Caution,
}

impl Looking {
    /// Whether it should look now.
    pub(super) fn begins(&mut self) -> bool {
        !FORBIDDEN.load(Ordering::Relaxed) && !self.caution.leaves_next()
    }

    /// It has looked, and found something or not.
    pub(super) fn ended(&mut self, found: bool) {
        match found {
            true => self.caution.went_well(),
            false => self.caution.went_wrong(),
        }
    }
}

/// Nobody in this process looks.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// For how long this process has looked, in nanoseconds.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Nobody in this process looks from now on: it has too little of the processor for that.
pub(crate) fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// The processor's time that this process has spent on looking, and that could have been anybody's.
pub(crate) fn looked() -> Duration {
    Duration::from_nanos(LOOKED.load(Ordering::Relaxed))
}

/// It was that much more.
pub(super) fn add(time: Duration) {
    // More than 500 years do not come to pass.
    LOOKED.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next hundred waits begin with a look, if each look ends like this.
    fn looks(looking: &mut Looking, found: bool) -> usize {
        let looked = (0..100).filter(|_| {
            let begins = looking.begins();
            if begins {
                looking.ended(found);
            }
            begins
        });
        looked.count()
    }

    #[test]
    fn who_finds_nothing_sleeps_and_who_finds_something_looks() {
        let mut looking = Looking::default();
        assert_eq!(looks(&mut looking, true), 100);
        assert!(looks(&mut looking, false) < 10);
        looks(&mut looking, true);
        assert_eq!(looks(&mut looking, true), 100, "once it pays again");
    }

    #[test]
    fn time_of_others_is_not_counted() {
        assert_eq!(own_time(Duration::from_micros(2)), Duration::from_micros(2));
        assert_eq!(own_time(Duration::from_millis(2)), Duration::ZERO);
    }
}

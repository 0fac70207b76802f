//! Whether a thread that waits for mail looks for it again and again for a moment before it sleeps.
//!
//! To sleep and to be woken takes tens of microseconds, most of them not on any core. If mail comes sooner than that, to look for
//! it is quicker and takes hardly more time of the processor; if it does not, looking is a waste. Which of both it is shows: after a
//! moment in vain the next ones are left out, more and more of them, until one pays again.
//!
//! Between two looks whoever else wants the core has it. Who computes there may keep it for milliseconds, much longer than being
//! woken would take, however unimportant it is: then nobody gives way for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elastin_runtime::Caution;

/// How long it looks before it sleeps: twice as long as it takes to be woken. Who waits for the next call of somebody who calls
/// again at once finds it in less, and so does who waits for the first replies to many calls.
const LOOKS_FOR_MAX: Duration = Duration::from_micros(100);

/// One look takes a microsecond or two. What takes longer than this was somebody else's time on the same core.
const OWN_TIME_MAX: Duration = Duration::from_micros(10);

/// Whoever keeps the core for longer than this computes. Those with whom mail is exchanged have less to do between two waits.
const LENT_MAX: Duration = Duration::from_micros(100);

/// Nobody gives way for so many times as long as the core was lent: what is lost like this stays below two per cent.
const KEPT_FOR_LENT: u32 = 64;

/// But not for longer than this, in case the process itself was stopped.
const KEPT_MAX: Duration = Duration::from_secs(1);

/// How much of the time that passed between two looks was this thread's.
fn own_time(passed: Duration) -> Duration {
    match passed <= OWN_TIME_MAX {
        true => passed,
        false => Duration::ZERO,
    }
}

/// What was learnt about looking for one kind of mail.
#[derive(Default)]
pub(super) struct Looking {
    caution: Caution,
    /// Nobody gives way before this.
    kept_until: Option<Instant>,
}

impl Looking {
    /// Looks for a moment, unless that is most likely a waste. `look` is to say whether there is something, and so does this.
    pub(super) fn look(&mut self, mut look: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        if !self.begins() {
            return false;
        }
        let gives_way = self.gives_way(began);
        let (mut looked_at, mut looked) = (began, Duration::ZERO);
        let found = loop {
            if look() {
                break true;
            }
            match gives_way {
                // Whoever else wants this core has it first.
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            let now = Instant::now();
            let passed = now.duration_since(looked_at);
            looked += own_time(passed);
            looked_at = now;
            if gives_way {
                self.lent(now, passed);
            }
            if now.duration_since(began) > LOOKS_FOR_MAX {
                break look();
            }
        };
        // More than 500 years do not come to pass.
        LOOKED.fetch_add(looked.as_nanos() as u64, Ordering::Relaxed);
        self.ended(found);
        found
    }

    /// Whether it should look now.
    fn begins(&mut self) -> bool {
        !FORBIDDEN.load(Ordering::Relaxed) && !self.caution.leaves_next()
    }

    /// Whether others may have the core between two looks.
    fn gives_way(&self, now: Instant) -> bool {
        self.kept_until.is_none_or(|until| now >= until)
    }

    /// Others had the core for so long.
    fn lent(&mut self, now: Instant, time: Duration) {
        if time > LENT_MAX {
            self.kept_until = Some(now + time.saturating_mul(KEPT_FOR_LENT).min(KEPT_MAX));
        }
    }

    /// It has looked, and found something or not.
    fn ended(&mut self, found: bool) {
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
pub(super) fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// The processor's time that this process has spent on looking, and that could have been anybody's.
pub(crate) fn looked() -> Duration {
    Duration::from_nanos(LOOKED.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

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
    fn nobody_gives_way_for_a_while_to_who_computes() {
        let (mut looking, now) = (Looking::default(), Instant::now());
        looking.lent(now, LENT_MAX);
        assert!(looking.gives_way(now), "that was a short while");
        looking.lent(now, MS);
        assert!(!looking.gives_way(now + KEPT_FOR_LENT * MS - MS));
        assert!(looking.gives_way(now + KEPT_FOR_LENT * MS));
        looking.lent(now, Duration::from_secs(3600));
        assert!(looking.gives_way(now + KEPT_MAX));
    }

    #[test]
    fn it_looks_until_there_is_something_and_not_for_long() {
        let mut looking = Looking::default();
        let mut left = 3;
        looking.look(|| {
            left -= 1;
            left == 0
        });
        assert_eq!(left, 0);
        let began = Instant::now();
        looking.look(|| false);
        assert!(began.elapsed() >= LOOKS_FOR_MAX);
    }

    #[test]
    fn time_of_others_is_not_counted() {
        assert_eq!(own_time(Duration::from_micros(2)), Duration::from_micros(2));
        assert_eq!(own_time(Duration::from_millis(2)), Duration::ZERO);
    }
}

//! Workers that have nothing to do.
//!
//! A worker that finds nothing sleeps until somebody has something for it. Most of what a busy worker schedules it will run
//! itself in a moment, and waking another for it would cost more than it gains. But a turn may go on for long, so while some
//! work and some sleep, one of the sleepers looks from time to time whether something waits: the *watcher*.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Duration;

use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::Mutex;

/// How often the watcher looks: as long as something may wait for a worker while another has nothing to do.
const WATCH_EVERY: Duration = Duration::from_millis(1);

/// Workers that sleep, and those that look for something to do.
#[derive(Default)]
pub(crate) struct Sleepers {
    list: Mutex<Vec<(u64, Unparker)>>,
    /// As many as there are in the list, readable without its lock.
    sleeping: AtomicUsize,
    /// Workers that look for something to run: while there is one, nobody needs to be woken.
    searching: AtomicUsize,
    watching: AtomicBool,
}

impl Sleepers {
    /// Wakes a sleeper, unless somebody is looking already.
    pub(crate) fn wake_one(&self) {
        // INVARIANT: what was pushed before is seen by a worker that counts itself as sleeping after this fence, because
        // that worker has a fence between counting and its last look.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) == 0 || self.searching.load(Ordering::Relaxed) > 0 {
            return;
        }
        let sleeper = self.list.lock().pop();
        if let Some((_, sleeper)) = sleeper {
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            sleeper.unpark();
        }
    }

    /// Makes sure that somebody watches, if anybody sleeps at all.
    #[inline]
    pub(crate) fn ensure_watcher(&self) {
        if self.sleeping.load(Ordering::Relaxed) > 0 && !self.watching.load(Ordering::Relaxed) {
            self.wake_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        let sleepers = std::mem::take(&mut *self.list.lock());
        self.sleeping.fetch_sub(sleepers.len(), Ordering::SeqCst);
        for (_, sleeper) in sleepers {
            sleeper.unpark();
        }
    }

    /// A worker begins to look for something to run.
    pub(crate) fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker has stopped looking; says whether it was the last one.
    pub(crate) fn end_search(&self) -> bool {
        self.searching.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Sleeps until woken, or until `ready` says that there is something to do. `workers` says how many there are.
    pub(crate) fn sleep(&self, id: u64, parker: &Parker, workers: impl Fn() -> usize, ready: impl Fn() -> bool) {
        self.list.lock().push((id, parker.unparker().clone()));
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if ready() && self.withdraw(id) {
            return;
        }
        // Who wakes this worker takes it off the list first. A token that comes later than that only makes a later sleep look
        // at the list once more.
        while self.is_asleep(id) {
            let watches =
                self.sleeping.load(Ordering::SeqCst) < workers() && !self.watching.swap(true, Ordering::SeqCst);
            if !watches {
                parker.park();
                continue;
            }
            parker.park_timeout(WATCH_EVERY);
            self.watching.store(false, Ordering::SeqCst);
            if ready() && self.withdraw(id) {
                return;
            }
        }
    }

    fn is_asleep(&self, id: u64) -> bool {
        self.list.lock().iter().any(|(sleeper, _)| *sleeper == id)
    }

    /// Takes a worker off the list by itself; says whether it was still there.
    fn withdraw(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let Some(position) = list.iter().position(|(sleeper, _)| *sleeper == id) else {
            return false;
        };
        list.swap_remove(position);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// A hand-over between a producer and sleeping workers, again and again: a lost wake-up would hang it.
    #[test]
    fn no_wake_up_is_lost() {
        const ROUNDS: u64 = 20_000;
        const WORKERS: usize = 2;
        let sleepers = Arc::new(Sleepers::default());
        let (offered, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let worker = |id: u64| {
            let (sleepers, offered, taken) = (sleepers.clone(), offered.clone(), taken.clone());
            std::thread::spawn(move || {
                let parker = Parker::new();
                let waits = || taken.load(Ordering::SeqCst) < offered.load(Ordering::SeqCst);
                let is_over = || taken.load(Ordering::SeqCst) >= ROUNDS;
                while !is_over() {
                    if waits() {
                        let before = taken.load(Ordering::SeqCst);
                        let _ = taken.compare_exchange(before, before + 1, Ordering::SeqCst, Ordering::SeqCst);
                    } else {
                        // As many workers as sleepers: nobody watches, so only wake-ups count.
                        sleepers.sleep(id, &parker, || 0, || waits() || is_over());
                    }
                }
                sleepers.wake_all();
            })
        };
        let workers: Vec<_> = (0..WORKERS as u64).map(worker).collect();
        for round in 1..=ROUNDS {
            offered.store(round, Ordering::SeqCst);
            sleepers.wake_one();
            while round % 64 == 0 && taken.load(Ordering::SeqCst) < round {
                std::thread::yield_now();
            }
        }
        for worker in workers {
            worker.join().expect("a worker ends well");
        }
        assert_eq!(taken.load(Ordering::SeqCst), ROUNDS);
        assert_eq!(sleepers.sleeping.load(Ordering::SeqCst), sleepers.list.lock().len());
    }
}

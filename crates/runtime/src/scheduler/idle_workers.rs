//! Workers that have nothing to do.
//!
//! A worker that finds nothing sleeps until somebody has something for it. Most of what a busy worker schedules it will run
//! itself in a moment, and waking another for it would cost more than it gains. But a turn may go on for long, so while some
//! work and some sleep, one of the idle workers looks from time to time whether something waits: the *watcher*.

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Parker, Unparker, fence};

/// How often the watcher looks: as long as something may wait for a worker while another has nothing to do.
const WATCH_EVERY: Duration = Duration::from_millis(1);

/// Workers that sleep, and those that look for something to do.
pub(crate) struct IdleWorkers {
    list: Mutex<Vec<(u64, Unparker)>>,
    /// As many as there are in the list, readable without its lock.
    sleeping: AtomicUsize,
    /// Workers that look for something to run: while there is one, nobody needs to be woken. Who was woken and is not awake yet
    /// is about to look, and counts.
    searching: AtomicUsize,
    watching: AtomicBool,
}

impl IdleWorkers {
    pub(crate) fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            sleeping: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
            watching: AtomicBool::new(false),
        }
    }

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
            self.searching.fetch_add(1, Ordering::SeqCst);
            sleeper.unpark();
        }
    }

    /// Whether anybody sleeps. Who is about to sleep may be missed, and watches then.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) > 0
    }

    /// Makes sure that somebody watches, if anybody sleeps at all.
    #[inline]
    pub(crate) fn ensure_watcher(&self) {
        if self.are_there() && !self.watching.load(Ordering::Relaxed) {
            self.wake_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        let idle_workers = std::mem::take(&mut *self.list.lock());
        self.sleeping.fetch_sub(idle_workers.len(), Ordering::SeqCst);
        self.searching.fetch_add(idle_workers.len(), Ordering::SeqCst);
        for (_, sleeper) in idle_workers {
            sleeper.unpark();
        }
    }

    /// A worker begins to look for something to run.
    pub(crate) fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker has stopped looking; says whether it was the last one.
    pub(crate) fn end_search(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        // INVARIANT: who offered something and saw this worker still searching woke nobody, so this worker must see what was
        // offered when it looks once more after this.
        fence(Ordering::SeqCst);
        last
    }

    /// Sleeps until woken, or until `ready` says that there is something to do. `workers` says how many there are. Says whether
    /// it was woken: then the worker counts as one that searches.
    #[must_use]
    pub(crate) fn sleep(
        &self,
        id: u64,
        parker: &Parker,
        workers: impl Fn() -> usize,
        ready: impl Fn() -> bool,
    ) -> bool {
        self.list.lock().push((id, parker.unparker().clone()));
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if ready() && self.withdraw(id) {
            return false;
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
                return false;
            }
        }
        true
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

#[cfg(all(test, feature = "loom"))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A worker that looks for work, finds none and sleeps, while somebody offers some: it must not sleep on. As many pieces of
    /// work as workers, each offered and announced like an entry of a run queue.
    fn nobody_sleeps_on(workers: usize) {
        let mut model = loom::model::Builder::new();
        // More preemptions find nothing that fewer don't, and take minutes.
        model.preemption_bound = Some(if workers > 1 { 2 } else { 4 });
        model.check(move || {
            let idle_workers = Arc::new(IdleWorkers::new());
            let offered = Arc::new(AtomicUsize::new(0));
            let take = |offered: &AtomicUsize| {
                let one_less = |offered: usize| offered.checked_sub(1);
                offered
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
                    .is_ok()
            };
            let work = |id: u64| {
                let (idle_workers, offered) = (idle_workers.clone(), offered.clone());
                thread::spawn(move || {
                    let parker = Parker::new();
                    let mut searches = false;
                    loop {
                        if !searches {
                            idle_workers.begin_search();
                        }
                        let found = take(&offered);
                        let last = idle_workers.end_search();
                        if found {
                            // While this worker searched, nobody was woken.
                            if last && offered.load(Ordering::Acquire) > 0 {
                                idle_workers.wake_one();
                            }
                            return;
                        }
                        searches = idle_workers.sleep(id, &parker, || 0, || offered.load(Ordering::Acquire) > 0);
                    }
                })
            };
            let threads: Vec<_> = (0..workers as u64).map(work).collect();
            for _ in 0..workers {
                offered.fetch_add(1, Ordering::AcqRel);
                idle_workers.wake_one();
            }
            for thread in threads {
                thread.join().expect("a worker ends well");
            }
        });
    }

    #[test]
    fn one_worker_does_not_sleep_while_there_is_work() {
        nobody_sleeps_on(1);
    }

    #[test]
    fn two_workers_do_not_sleep_while_there_is_work_for_both() {
        nobody_sleeps_on(2);
    }
}

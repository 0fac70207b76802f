//! Parking and waking of idle workers.
//!
//! A worker that finds no work parks until it is woken. A busy worker runs most of what it schedules itself a moment
//! later, so waking another one for it would cost more than it gains. But a turn may be long: while some workers are
//! busy and some parked, one parked worker polls for work, the *watcher*.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Parker, Unparker, fence};
use crate::tuning::WATCH_EVERY;

/// The parked workers, and counts of parked and searching ones.
pub(crate) struct IdleWorkers {
    list: Mutex<Vec<(u64, Unparker)>>,
    /// Length of the list, readable without its lock.
    parked: AtomicUsize,
    /// Workers that search for work: while there is one, none needs to be woken. A woken worker that has not resumed
    /// yet counts as searching.
    searching: AtomicUsize,
    watching: AtomicBool,
}

impl IdleWorkers {
    pub(crate) fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            parked: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
            watching: AtomicBool::new(false),
        }
    }

    /// Wakes a parked worker, unless another one is searching already.
    pub(crate) fn wake_one(&self) {
        // INVARIANT: a worker that counts itself as parked after this fence sees the work pushed before it. That worker has
        // a fence between counting and its last check.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) == 0 || self.searching.load(Ordering::Relaxed) > 0 {
            return;
        }
        let worker = self.list.lock().pop();
        if let Some((_, worker)) = worker {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            self.searching.fetch_add(1, Ordering::SeqCst);
            worker.unpark();
        }
    }

    /// Whether any worker is parked. A worker about to park may be missed; it becomes the watcher then.
    #[inline]
    pub(crate) fn any_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) > 0
    }

    /// Makes sure that there is a watcher if any worker is parked.
    #[inline]
    pub(crate) fn ensure_watcher(&self) {
        if self.any_parked() && !self.watching.load(Ordering::Relaxed) {
            self.wake_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        let parked = std::mem::take(&mut *self.list.lock());
        self.parked.fetch_sub(parked.len(), Ordering::SeqCst);
        self.searching.fetch_add(parked.len(), Ordering::SeqCst);
        for (_, worker) in parked {
            worker.unpark();
        }
    }

    /// Counts a worker that starts searching.
    pub(crate) fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a worker that stops searching; returns whether it was the last one.
    pub(crate) fn end_search(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        // INVARIANT: a thread that pushed work and saw this worker searching woke no other. So this worker must see
        // that work when it checks once more after this.
        fence(Ordering::SeqCst);
        last
    }

    /// Parks until woken, or until `ready` returns true. `workers` is the number of workers. Returns whether the worker
    /// was woken: it then counts as searching.
    #[must_use]
    pub(crate) fn park(&self, id: u64, parker: &Parker, workers: impl Fn() -> usize, ready: impl Fn() -> bool) -> bool {
        self.list.lock().push((id, parker.unparker().clone()));
        self.parked.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if ready() && self.cancel_park(id) {
            return false;
        }
        // The waking thread first takes this worker off the list. A token that arrives later only makes a later park
        // check the list once more.
        while self.is_parked(id) {
            let watches = self.parked.load(Ordering::SeqCst) < workers() && !self.watching.swap(true, Ordering::SeqCst);
            if !watches {
                parker.park();
                continue;
            }
            parker.park_timeout(WATCH_EVERY);
            self.watching.store(false, Ordering::SeqCst);
            if ready() && self.cancel_park(id) {
                return false;
            }
        }
        true
    }

    fn is_parked(&self, id: u64) -> bool {
        self.list.lock().iter().any(|(worker, _)| *worker == id)
    }

    /// Takes a worker off the list; returns whether it was still there.
    fn cancel_park(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let Some(position) = list.iter().position(|(worker, _)| *worker == id) else {
            return false;
        };
        list.swap_remove(position);
        self.parked.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

#[cfg(all(test, feature = "loom"))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Checks that a worker does not stay parked when work arrives while it searches and parks. There are as many
    /// pieces of work as workers, each pushed and signalled like a run-queue entry.
    fn check_no_lost_wakeup(workers: usize) {
        let mut model = loom::model::Builder::new();
        // More preemptions find nothing that fewer do not, and take minutes.
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
                            // While this worker searched, no other was woken.
                            if last && offered.load(Ordering::Acquire) > 0 {
                                idle_workers.wake_one();
                            }
                            return;
                        }
                        searches = idle_workers.park(id, &parker, || 0, || offered.load(Ordering::Acquire) > 0);
                    }
                })
            };
            let threads: Vec<_> = (0..workers as u64).map(work).collect();
            for _ in 0..workers {
                offered.fetch_add(1, Ordering::AcqRel);
                idle_workers.wake_one();
            }
            for thread in threads {
                thread.join().expect("a worker does not panic");
            }
        });
    }

    #[test]
    fn one_worker_does_not_stay_parked_with_work_queued() {
        check_no_lost_wakeup(1);
    }

    #[test]
    fn two_workers_do_not_stay_parked_with_work_for_both() {
        check_no_lost_wakeup(2);
    }
}

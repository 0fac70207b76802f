//! The work stage: worker threads that run cells with queued messages or woken turns.
//!
//! ```text
//!   ActorCell::schedule
//!          │
//!   Scheduler::schedule ──▶ worker's own run queue ◀── stolen by idle workers
//!          │                          │
//!          ├──▶ injector queue ───────┤   (scheduled from a thread that is no worker)
//!          │                          ▼
//!          │             Scheduler::work: Search::next, Runnable::run
//!          │                          ▲
//!          └──▶ InlineTask ───────────┘   (kept for the thread that delivers messages)
//! ```
//!
//! The entries of the run queues are the cells themselves, each queued at most once. [`Scheduler::schedule`] enqueues one
//! and decides by [`WakeMode`] whether to wake a worker ([`idle_workers`]). A [`worker`] takes tasks from its own queue,
//! the injector queue, and by work stealing, and calls [`Runnable::run`], which runs a batch of turns
//! (`cell::batch_run`). Replies are sent by the cell, not by the scheduler.
//!
//! Two shortcuts avoid a worker: [`inline_task`] for threads that deliver messages, and [`caller_resume`] for callers
//! that resume their own suspended turns. [`cpu_quota`] throttles the workers. The fence stops all turns once the
//! node's lease has expired.
//!
//! Workers can be added and removed at run time: a surplus worker moves its queue to the injector queue and ends.

pub(crate) mod caller_resume;
pub(crate) mod cpu_clock;
pub(crate) mod cpu_quota;
pub(crate) mod idle_workers;
pub(crate) mod inline_task;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use elastin_clock::Clock;
use elastin_types::Time;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::scheduler::cpu_quota::CpuQuota;
use crate::scheduler::idle_workers::IdleWorkers;
use crate::scheduler::worker::Search;

/// Lease expiry of a node without a lease.
const NO_LEASE: u64 = u64::MAX;

/// An entry of a run queue: a cell with work.
pub(crate) trait Runnable: Send + Sync {
    /// Runs for a bounded time.
    fn run(self: Arc<Self>);

    /// The scheduler whose workers run it.
    fn scheduler(&self) -> &Arc<Scheduler>;
}

/// An entry of a run queue.
pub(crate) type Task = Arc<dyn Runnable>;

/// The workers and their run queues.
pub(crate) struct Scheduler {
    clock: Clock,
    pub(crate) injector: Injector<Task>,
    pub(crate) workers: RwLock<BTreeMap<u64, Stealer<Task>>>,
    /// Incremented whenever `workers` changes, so that a worker can tell when its copy is stale.
    pub(crate) version: AtomicU64,
    /// Length of `workers`, readable without its lock.
    running: AtomicUsize,
    wanted: AtomicUsize,
    pub(crate) idle_workers: IdleWorkers,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_worker: AtomicU64,
    pub(crate) cpu_quota: CpuQuota,
    limited: bool,
    pub(crate) pauses: AtomicU64,
    fenced: AtomicBool,
    /// Turns may start until this time, which is checked against the clock before each of them. A process may be
    /// suspended for any time, and no timer fires before a runnable thread resumes.
    lease_until: AtomicU64,
    /// Held while changing either of the two.
    fencing: Mutex<()>,
}

/// How urgently another worker is needed for a scheduled cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMode {
    /// At once: the scheduling thread carries on with something else.
    Now,
    /// The scheduling thread is about to finish and can run it itself.
    Later,
}

impl Scheduler {
    pub(crate) fn new(clock: Clock, cpu_share: Option<f64>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            injector: Injector::new(),
            workers: RwLock::default(),
            version: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            idle_workers: IdleWorkers::new(),
            threads: Mutex::default(),
            next_worker: AtomicU64::new(0),
            cpu_quota: CpuQuota::new(cpu_share),
            limited: cpu_share.is_some(),
            pauses: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            lease_until: AtomicU64::new(NO_LEASE),
            fencing: Mutex::new(()),
        })
    }

    /// Enqueues a task: into this worker's run queue, or into the injector queue.
    pub(crate) fn schedule(task: Task, wake: WakeMode) {
        if let Some(task) = worker::push(task, wake).and_then(inline_task::try_keep) {
            task.scheduler().clone().offer(task);
        }
    }

    /// Enqueues a task into the injector queue.
    pub(crate) fn offer(&self, task: Task) {
        self.injector.push(task);
        self.wake_one();
    }

    /// Whether other tasks wait for this worker.
    pub(crate) fn has_other_work(&self) -> bool {
        worker::has_local_work() || !self.injector.is_empty()
    }

    /// Sets the number of workers. Surplus workers end after their current batch.
    pub(crate) fn set_workers(self: &Arc<Self>, wanted: usize, handle: &Handle) -> std::io::Result<()> {
        self.wanted.store(wanted, Ordering::SeqCst);
        // Parked workers check whether they are surplus when they wake.
        self.idle_workers.wake_all();
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        while self.workers.read().len() < self.wanted.load(Ordering::SeqCst) {
            let id = self.next_worker.fetch_add(1, Ordering::Relaxed);
            let queue = Worker::new_fifo();
            self.change_workers(|workers| workers.insert(id, queue.stealer()));
            let (scheduler, handle) = (self.clone(), handle.clone());
            let started = std::thread::Builder::new()
                .name(format!("elastin-work-{id}"))
                .spawn(move || scheduler.work(id, queue, &handle));
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.change_workers(|workers| workers.remove(&id));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.read().len()
    }

    /// How many tasks wait in run queues.
    pub(crate) fn queued(&self) -> usize {
        self.injector.len() + self.workers.read().values().map(Stealer::len).sum::<usize>()
    }

    /// Stops all workers and joins their threads. Queued tasks are dropped.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.wanted.store(0, Ordering::SeqCst);
        self.idle_workers.wake_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        while !matches!(self.injector.steal(), Steal::Empty) {}
    }

    pub(crate) fn set_fenced(&self, fenced: bool) {
        let _fencing = self.fencing.lock();
        self.fenced.store(fenced, Ordering::SeqCst);
        if !fenced {
            self.idle_workers.wake_all();
        }
    }

    /// Sets the time until which turns may start. Fences the node if it has passed.
    pub(crate) fn set_lease_until(&self, until: Time) {
        let _fencing = self.fencing.lock();
        self.lease_until.store(until.0, Ordering::SeqCst);
        if self.clock.now() >= until {
            self.fenced.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the node was fenced as of the last check.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Whether no turn may start now. Reads the clock if there is a lease.
    #[inline]
    pub(crate) fn is_fenced_now(&self) -> bool {
        let is_over = |until| until != NO_LEASE && self.clock.now().0 >= until;
        self.is_fenced() || (is_over(self.lease_until.load(Ordering::Relaxed)) && self.fence_if_expired())
    }

    #[cold]
    fn fence_if_expired(&self) -> bool {
        let _fencing = self.fencing.lock();
        // Checked again: the lease may have been renewed meanwhile.
        let is_over = self.clock.now().0 >= self.lease_until.load(Ordering::SeqCst);
        if is_over {
            self.fenced.store(true, Ordering::SeqCst);
        }
        is_over
    }

    /// Whether the process has a CPU quota.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Wakes a worker, unless one is searching already.
    pub(crate) fn wake_one(&self) {
        self.idle_workers.wake_one();
    }

    fn change_workers(&self, change: impl FnOnce(&mut BTreeMap<u64, Stealer<Task>>) -> Option<Stealer<Task>>) {
        let mut workers = self.workers.write();
        change(&mut workers);
        self.running.store(workers.len(), Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Main loop of a worker.
    fn work(self: Arc<Self>, id: u64, queue: Worker<Task>, handle: &Handle) {
        let _tokio = handle.enter();
        worker::begin(self.clone(), queue);
        let mut search = Search::new(id);
        while !self.retires(id) {
            if self.is_fenced_now() {
                self.park(&mut search, |scheduler| !scheduler.is_fenced());
                continue;
            }
            self.pause_if_throttled();
            match search.next(&self) {
                Some(task) => {
                    task.run();
                    self.wake_for_surplus();
                }
                None => self.park(&mut search, |scheduler| scheduler.has_work()),
            }
        }
        for task in worker::end() {
            self.injector.push(task);
        }
        search.end(&self);
        self.wake_one();
    }

    /// Wakes another worker for tasks beyond the one that this worker will run next.
    fn wake_for_surplus(&self) {
        if worker::take_pending_wake() && self.idle_workers.any_parked() {
            self.wake_one();
        }
    }

    /// Whether there are more workers than wanted.
    fn has_surplus(&self) -> bool {
        self.running.load(Ordering::Relaxed) > self.wanted.load(Ordering::Relaxed)
    }

    /// Whether this worker is surplus; if so, it is no longer counted.
    fn retires(&self, id: u64) -> bool {
        if !self.has_surplus() {
            return false;
        }
        // Under the lock, so that only one of two workers that see a surplus ends.
        let mut workers = self.workers.write();
        if workers.len() <= self.wanted.load(Ordering::SeqCst) {
            return false;
        }
        workers.remove(&id);
        self.running.store(workers.len(), Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn pause_if_throttled(&self) {
        if !self.is_limited() {
            return;
        }
        while let Some(pause) = self.cpu_quota.pause(self.clock.now(), cpu_clock::process_cpu) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(pause);
            // A surplus worker does not wait for the quota.
            if self.has_surplus() {
                return;
            }
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.injector.is_empty() || self.workers.read().values().any(|stealer| !stealer.is_empty())
    }

    /// Parks until woken, unless `ready` returns true.
    fn park(&self, search: &mut Search, ready: impl Fn(&Self) -> bool) {
        let workers = || self.running.load(Ordering::Relaxed);
        search.park(self, workers, || ready(self) || self.has_surplus());
    }
}

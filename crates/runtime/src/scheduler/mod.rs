//! The work stage: threads that run whatever is runnable.
//!
//! Activations themselves are the entries of the run queues. Each worker has a queue that others may steal from; what is
//! scheduled from elsewhere goes through a common one. Threads can be added and removed while it runs: a worker that is one too
//! many puts its queue into the common one and ends.

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

/// The time until which turns may begin where there is no lease.
const NEVER_OVER: u64 = u64::MAX;

/// Something that a worker can run.
pub(crate) trait Runnable: Send + Sync {
    /// Runs for a bounded time.
    fn run(self: Arc<Self>);

    /// Whose workers run it.
    fn scheduler(&self) -> &Arc<Scheduler>;
}

/// An entry of a run queue.
pub(crate) type Task = Arc<dyn Runnable>;

/// The threads and their queues.
pub(crate) struct Scheduler {
    clock: Clock,
    pub(crate) common: Injector<Task>,
    pub(crate) workers: RwLock<BTreeMap<u64, Stealer<Task>>>,
    /// Changes with `workers`, so that a worker knows when its copy is old.
    pub(crate) version: AtomicU64,
    /// As many as `workers` has, readable without its lock.
    running: AtomicUsize,
    wanted: AtomicUsize,
    pub(crate) idle_workers: IdleWorkers,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_worker: AtomicU64,
    pub(crate) share: CpuQuota,
    limited: bool,
    pub(crate) pauses: AtomicU64,
    fenced: AtomicBool,
    /// Turns may begin until this time, for which whoever is about to begin one looks at the clock: a process may be stopped
    /// for any time, and no timer is faster than a thread that has something to run when it goes on.
    good_until: AtomicU64,
    /// Held by who changes both.
    fencing: Mutex<()>,
}

/// How urgently somebody should look at what is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMode {
    /// At once: whoever schedules goes on with something else.
    Now,
    /// Whoever schedules is about to be done and can run it itself.
    Later,
}

impl Scheduler {
    pub(crate) fn new(clock: Clock, cpu_share: Option<f64>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            common: Injector::new(),
            workers: RwLock::default(),
            version: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            idle_workers: IdleWorkers::new(),
            threads: Mutex::default(),
            next_worker: AtomicU64::new(0),
            share: CpuQuota::new(cpu_share),
            limited: cpu_share.is_some(),
            pauses: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            good_until: AtomicU64::new(NEVER_OVER),
            fencing: Mutex::new(()),
        })
    }

    /// Puts something into a run queue: this worker's own, or the common one.
    pub(crate) fn schedule(task: Task, announce: WakeMode) {
        if let Some(task) = worker::push(task, announce).and_then(inline_task::keep) {
            task.scheduler().clone().offer(task);
        }
    }

    /// Puts something into the common run queue.
    pub(crate) fn offer(&self, task: Task) {
        self.common.push(task);
        self.wake_one();
    }

    /// Whether this worker has something else to run.
    pub(crate) fn others_wait(&self) -> bool {
        worker::has_more() || !self.common.is_empty()
    }

    /// Sets how many threads there are. Threads that are too many end after their present visit.
    pub(crate) fn set_workers(self: &Arc<Self>, wanted: usize, handle: &Handle) -> std::io::Result<()> {
        self.wanted.store(wanted, Ordering::SeqCst);
        // IdleWorkers look whether they are one too many when they wake up.
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

    /// How many entries wait in run queues.
    pub(crate) fn queued(&self) -> usize {
        self.common.len() + self.workers.read().values().map(Stealer::len).sum::<usize>()
    }

    /// Stops all threads and waits for them. What is queued is dropped.
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
        while !matches!(self.common.steal(), Steal::Empty) {}
    }

    pub(crate) fn set_fenced(&self, fenced: bool) {
        let _fencing = self.fencing.lock();
        self.fenced.store(fenced, Ordering::SeqCst);
        if !fenced {
            self.idle_workers.wake_all();
        }
    }

    /// Turns may begin until this time. It is fenced if that is over.
    pub(crate) fn set_good_until(&self, until: Time) {
        let _fencing = self.fencing.lock();
        self.good_until.store(until.0, Ordering::SeqCst);
        if self.clock.now() >= until {
            self.fenced.store(true, Ordering::SeqCst);
        }
    }

    /// Whether it was fenced when somebody looked last.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Whether no turn may begin now. Looks at the clock, if there is a lease.
    #[inline]
    pub(crate) fn look_whether_fenced(&self) -> bool {
        let is_over = |until| until != NEVER_OVER && self.clock.now().0 >= until;
        self.is_fenced() || (is_over(self.good_until.load(Ordering::Relaxed)) && self.fence_if_over())
    }

    #[cold]
    fn fence_if_over(&self) -> bool {
        let _fencing = self.fencing.lock();
        // Looked at again: it may have been made longer meanwhile.
        let is_over = self.clock.now().0 >= self.good_until.load(Ordering::SeqCst);
        if is_over {
            self.fenced.store(true, Ordering::SeqCst);
        }
        is_over
    }

    /// Whether the process has a CPU share to keep to.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Wakes a worker, unless one is looking for something to do already.
    pub(crate) fn wake_one(&self) {
        self.idle_workers.wake_one();
    }

    fn change_workers(&self, change: impl FnOnce(&mut BTreeMap<u64, Stealer<Task>>) -> Option<Stealer<Task>>) {
        let mut workers = self.workers.write();
        change(&mut workers);
        self.running.store(workers.len(), Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The life of a worker.
    fn work(self: Arc<Self>, id: u64, queue: Worker<Task>, handle: &Handle) {
        let _tokio = handle.enter();
        worker::begin(self.clone(), queue);
        let mut search = Search::new(id);
        while !self.retires(id) {
            if self.look_whether_fenced() {
                self.sleep(&mut search, |scheduler| !scheduler.is_fenced());
                continue;
            }
            self.pause_if_throttled();
            match search.next(&self) {
                Some(task) => {
                    task.run();
                    self.announce();
                }
                None => self.sleep(&mut search, |scheduler| scheduler.has_work()),
            }
        }
        for task in worker::end() {
            self.common.push(task);
        }
        search.end(&self);
        self.wake_one();
    }

    /// Wakes somebody for what this worker's last visit scheduled beyond what it will run next itself.
    fn announce(&self) {
        if worker::take_unannounced() && self.idle_workers.are_there() {
            self.wake_one();
        }
    }

    /// Whether there are more workers than wanted.
    fn has_surplus(&self) -> bool {
        self.running.load(Ordering::Relaxed) > self.wanted.load(Ordering::Relaxed)
    }

    /// Whether this worker is one too many; if so it is no longer counted.
    fn retires(&self, id: u64) -> bool {
        if !self.has_surplus() {
            return false;
        }
        // Under the lock, so that of two that see one too many only one goes.
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
        while let Some(pause) = self.share.pause(self.clock.now(), cpu_clock::process_cpu) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(pause);
            // A thread that is to end does not wait for its share.
            if self.has_surplus() {
                return;
            }
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.common.is_empty() || self.workers.read().values().any(|stealer| !stealer.is_empty())
    }

    /// Sleeps until woken, unless `ready` says that there is something to do.
    fn sleep(&self, search: &mut Search, ready: impl Fn(&Self) -> bool) {
        let workers = || self.running.load(Ordering::Relaxed);
        search.sleep(self, workers, || ready(self) || self.has_surplus());
    }
}

//! The work stage: threads that run whatever is runnable.
//!
//! Activations themselves are the entries of the run queues. Each worker has a queue that others may steal from; what is
//! scheduled from elsewhere goes through a common one. Threads can be added and removed while it runs: a worker that is one too
//! many puts its queue into the common one and ends.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::JoinHandle;

use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use crossbeam_utils::sync::{Parker, Unparker};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::clock::{self, Clock};
use crate::share::CpuShare;

/// After how many visits a worker looks into the common queue first, so that what came from outside is not starved.
const COMMON_EVERY: u32 = 31;

/// How often an idle worker looks again before it sleeps: a hand-off between busy actors is quicker than a sleep, and a
/// longer wait would take the CPU from other processes.
const LOOKS_BEFORE_SLEEP: u32 = 32;

/// Something that a worker can run.
pub(crate) trait Runnable: Send + Sync {
    /// Runs for a bounded time.
    fn run(self: Arc<Self>);
}

type Task = Arc<dyn Runnable>;

/// The threads and their queues.
pub(crate) struct Scheduler {
    clock: Clock,
    common: Injector<Task>,
    workers: RwLock<BTreeMap<u64, Stealer<Task>>>,
    /// Changes with `workers`, so that a worker knows when its copy is old.
    version: AtomicU64,
    /// As many as `workers` has, readable without its lock.
    running: AtomicUsize,
    wanted: AtomicUsize,
    sleepers: Mutex<Vec<(u64, Unparker)>>,
    sleeping: AtomicUsize,
    /// Workers that look for something to run: while there is one, nobody needs to be woken.
    searching: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_worker: AtomicU64,
    pub(crate) share: CpuShare,
    limited: AtomicBool,
    pub(crate) pauses: AtomicU64,
    fenced: AtomicBool,
}

thread_local! {
    // Without a destructor, because access to a variable that has one costs more. A worker takes it out when it ends.
    static LOCAL: ManuallyDrop<RefCell<Option<Local>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// The queue of the worker that this thread is.
struct Local {
    /// Which scheduler it belongs to: there may be several in a process.
    scheduler: usize,
    queue: Worker<Task>,
    /// Something was put into the queue without waking anybody.
    unannounced: bool,
}

/// How urgently somebody should look at what is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announce {
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
            sleepers: Mutex::default(),
            sleeping: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
            threads: Mutex::default(),
            next_worker: AtomicU64::new(0),
            share: CpuShare::new(cpu_share),
            limited: AtomicBool::new(cpu_share.is_some()),
            pauses: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
        })
    }

    /// Puts something into a run queue: this worker's own, or the common one.
    pub(crate) fn schedule(self: &Arc<Self>, task: Task, announce: Announce) {
        let mut task = Some(task);
        let own = LOCAL.with(|local| match &mut *local.borrow_mut() {
            Some(local) if local.scheduler == self.address() => {
                local.queue.push(task.take().expect("nobody took it yet"));
                local.unannounced |= announce == Announce::Later;
                true
            }
            _ => false,
        });
        if let Some(task) = task {
            self.common.push(task);
        }
        if !own || announce == Announce::Now {
            self.wake_one();
        }
    }

    /// Whether this worker has something else to run.
    pub(crate) fn others_wait(&self) -> bool {
        let own = LOCAL.with(|local| local.borrow().as_ref().is_some_and(|local| !local.queue.is_empty()));
        own || !self.common.is_empty()
    }

    /// Sets how many threads there are. Threads that are too many end after their present visit.
    pub(crate) fn set_workers(self: &Arc<Self>, wanted: usize, handle: &Handle) -> std::io::Result<()> {
        self.wanted.store(wanted, Ordering::SeqCst);
        // Sleepers look whether they are one too many when they wake up.
        self.wake_all();
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
        self.wake_all();
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
        self.fenced.store(fenced, Ordering::SeqCst);
        if !fenced {
            self.wake_all();
        }
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Whether the process has a CPU share to keep to.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    pub(crate) fn set_share(&self, cores: Option<f64>) {
        self.share.set(cores);
        self.limited.store(cores.is_some(), Ordering::SeqCst);
    }

    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Wakes a sleeper, unless somebody is looking already.
    pub(crate) fn wake_one(&self) {
        // INVARIANT: what was pushed before is seen by a worker that counts itself as sleeping after this fence, because
        // that worker has a fence between counting and its last look.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) == 0 || self.searching.load(Ordering::Relaxed) > 0 {
            return;
        }
        let sleeper = self.sleepers.lock().pop();
        if let Some((_, sleeper)) = sleeper {
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            sleeper.unpark();
        }
    }

    fn wake_all(&self) {
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        self.sleeping.fetch_sub(sleepers.len(), Ordering::SeqCst);
        for (_, sleeper) in sleepers {
            sleeper.unpark();
        }
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
        let local = Local {
            scheduler: self.address(),
            queue,
            unannounced: false,
        };
        LOCAL.with(|place| place.replace(Some(local)));
        let mut search = Search::new(id);
        while !self.retires(id) {
            if self.is_fenced() {
                self.sleep(id, &search.parker, |scheduler| !scheduler.is_fenced());
                continue;
            }
            self.pause_if_throttled();
            match search.next(&self) {
                Some(task) => {
                    task.run();
                    self.announce();
                }
                None => self.sleep(id, &search.parker, |scheduler| scheduler.has_work()),
            }
        }
        let local = LOCAL.with(|local| local.take()).expect("this thread is a worker");
        while let Some(task) = local.queue.pop() {
            self.common.push(task);
        }
        self.wake_one();
    }

    /// Wakes somebody for what this worker's last visit scheduled beyond what it will run next itself.
    fn announce(&self) {
        let help = LOCAL.with(|local| {
            let mut local = local.borrow_mut();
            let local = local.as_mut().expect("this thread is a worker");
            std::mem::take(&mut local.unannounced) && local.queue.len() > 1
        });
        if help {
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
        while let Some(pause) = self.share.pause(self.clock.now(), clock::process_cpu) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(pause);
            // A thread that is to end does not wait for its share.
            if self.has_surplus() {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        !self.common.is_empty() || self.workers.read().values().any(|stealer| !stealer.is_empty())
    }

    /// Sleeps until woken, unless `ready` says that there is something to do.
    fn sleep(&self, id: u64, parker: &Parker, ready: impl Fn(&Self) -> bool) {
        self.sleepers.lock().push((id, parker.unparker().clone()));
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if ready(self) || self.has_surplus() {
            let mut sleepers = self.sleepers.lock();
            if let Some(position) = sleepers.iter().position(|(sleeper, _)| *sleeper == id) {
                sleepers.swap_remove(position);
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
        // Either nothing is there, or somebody took this worker off the list and its token is waiting.
        parker.park();
    }
}

/// A worker's way of finding something to run.
struct Search {
    id: u64,
    parker: Parker,
    visits: u32,
    others: Vec<Stealer<Task>>,
    version: u64,
}

impl Search {
    fn new(id: u64) -> Self {
        Self {
            id,
            parker: Parker::new(),
            visits: 0,
            others: Vec::new(),
            version: u64::MAX,
        }
    }

    fn next(&mut self, scheduler: &Scheduler) -> Option<Task> {
        self.visits = self.visits.wrapping_add(1);
        if self.visits.is_multiple_of(COMMON_EVERY)
            && let Some(task) = self.take_common(scheduler)
        {
            return Some(task);
        }
        let own = LOCAL.with(|local| local.borrow().as_ref().expect("this thread is a worker").queue.pop());
        if own.is_some() {
            return own;
        }
        scheduler.searching.fetch_add(1, Ordering::SeqCst);
        let found = (0..LOOKS_BEFORE_SLEEP).find_map(|look| {
            if look > 0 {
                std::hint::spin_loop();
            }
            self.take_common(scheduler).or_else(|| self.steal(scheduler))
        });
        let last = scheduler.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        // While this worker searched, nobody was woken. If there is more, somebody else should look.
        if found.is_some() && last && scheduler.has_work() {
            scheduler.wake_one();
        }
        found
    }

    fn take_common(&self, scheduler: &Scheduler) -> Option<Task> {
        LOCAL.with(|local| {
            let local = local.borrow();
            let queue = &local.as_ref().expect("this thread is a worker").queue;
            retry(|| scheduler.common.steal_batch_and_pop(queue))
        })
    }

    fn steal(&mut self, scheduler: &Scheduler) -> Option<Task> {
        let version = scheduler.version.load(Ordering::Acquire);
        if version != self.version {
            let workers = scheduler.workers.read();
            let others = workers.iter().filter(|(id, _)| **id != self.id);
            self.others = others.map(|(_, stealer)| stealer.clone()).collect();
            self.version = version;
        }
        LOCAL.with(|local| {
            let local = local.borrow();
            let queue = &local.as_ref().expect("this thread is a worker").queue;
            // Half of what another has, so that the two don't meet again for the next one.
            self.others
                .iter()
                .find_map(|other| retry(|| other.steal_batch_and_pop(queue)))
        })
    }
}

fn retry(steal: impl Fn() -> Steal<Task>) -> Option<Task> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

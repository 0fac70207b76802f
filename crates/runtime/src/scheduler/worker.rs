//! The worker that a thread is: its run queue, and how it finds something to run.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_deque::{Steal, Stealer, Worker};

use crate::scheduler::{Scheduler, Task, WakeMode};
use crate::sync::Parker;

/// After how many visits a worker looks into the common queue first, so that what came from outside is not starved.
const INJECTOR_EVERY: u32 = 31;

/// How often an idle worker looks again before it sleeps: a hand-off between busy actors is quicker than a sleep, and a
/// longer wait would take the CPU from other processes.
const SPINS_BEFORE_PARK: u32 = 32;

thread_local! {
    // Without a destructor, because access to a variable that has one costs more. A worker takes it out when it ends.
    static LOCAL: ManuallyDrop<RefCell<Option<Local>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// The queue of the worker that this thread is.
struct Local {
    /// Whose worker it is: there may be several schedulers in a process.
    scheduler: Arc<Scheduler>,
    queue: Worker<Task>,
    /// Something was put into the queue without waking anybody.
    unannounced: bool,
}

/// This thread becomes a worker of a scheduler.
pub(crate) fn begin(scheduler: Arc<Scheduler>, queue: Worker<Task>) {
    let local = Local {
        scheduler,
        queue,
        unannounced: false,
    };
    LOCAL.with(|place| place.replace(Some(local)));
}

/// This thread is no worker any longer; gives what is left in its queue.
pub(crate) fn end() -> impl Iterator<Item = Task> {
    let local = LOCAL.with(|local| local.take()).expect("this thread is a worker");
    std::iter::from_fn(move || local.queue.pop())
}

/// Puts something into the queue of this worker; gives it back if this thread is no worker of its scheduler.
#[inline]
pub(crate) fn push(task: Task, announce: WakeMode) -> Option<Task> {
    LOCAL.with(|local| match &mut *local.borrow_mut() {
        Some(local) if Arc::ptr_eq(&local.scheduler, task.scheduler()) => {
            local.queue.push(task);
            match announce {
                WakeMode::Now => local.scheduler.wake_one(),
                WakeMode::Later => {
                    local.unannounced = true;
                    local.scheduler.idle_workers.ensure_watcher();
                }
            }
            None
        }
        _ => Some(task),
    })
}

/// Whether this worker has more in its queue than it will run next, and nobody was told.
pub(crate) fn take_unannounced() -> bool {
    LOCAL.with(|local| {
        let mut local = local.borrow_mut();
        let local = local.as_mut().expect("this thread is a worker");
        std::mem::take(&mut local.unannounced) && local.queue.len() > 1
    })
}

/// Whether there is something in the queue of this worker.
pub(crate) fn has_more() -> bool {
    LOCAL.with(|local| local.borrow().as_ref().is_some_and(|local| !local.queue.is_empty()))
}

fn with_queue<T>(look: impl FnOnce(&Worker<Task>) -> T) -> T {
    LOCAL.with(|local| look(&local.borrow().as_ref().expect("this thread is a worker").queue))
}

/// A worker's way of finding something to run.
pub(crate) struct Search {
    id: u64,
    parker: Parker,
    visits: u32,
    others: Vec<Stealer<Task>>,
    version: u64,
    /// Whether this worker counts as one that searches.
    begun: bool,
}

impl Search {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            parker: Parker::new(),
            visits: 0,
            others: Vec::new(),
            version: u64::MAX,
            begun: false,
        }
    }

    pub(crate) fn next(&mut self, scheduler: &Scheduler) -> Option<Task> {
        self.visits = self.visits.wrapping_add(1);
        if self.visits.is_multiple_of(INJECTOR_EVERY)
            && let Some(task) = self.take_injected(scheduler)
        {
            self.found(scheduler);
            return Some(task);
        }
        let own = with_queue(|queue| queue.pop());
        if own.is_some() {
            self.found(scheduler);
            return own;
        }
        if !self.begun {
            self.begun = true;
            scheduler.idle_workers.begin_search();
        }
        let found = (0..SPINS_BEFORE_PARK).find_map(|look| {
            if look > 0 {
                std::hint::spin_loop();
            }
            self.take_injected(scheduler).or_else(|| self.steal(scheduler))
        });
        match found {
            Some(_) => self.found(scheduler),
            None => _ = self.end(scheduler),
        }
        found
    }

    /// Sleeps until woken, unless `ready` says that there is something to do.
    pub(crate) fn sleep(&mut self, scheduler: &Scheduler, workers: impl Fn() -> usize, ready: impl Fn() -> bool) {
        self.end(scheduler);
        self.begun = scheduler.idle_workers.sleep(self.id, &self.parker, workers, ready);
    }

    /// This worker has something to run.
    fn found(&mut self, scheduler: &Scheduler) {
        // While this worker searched, nobody was woken. If there is more, somebody else should look.
        if self.end(scheduler) && scheduler.has_work() {
            scheduler.wake_one();
        }
    }

    /// This worker does not search, or not any longer; says whether it did and was the last one.
    pub(crate) fn end(&mut self, scheduler: &Scheduler) -> bool {
        std::mem::take(&mut self.begun) && scheduler.idle_workers.end_search()
    }

    fn take_injected(&self, scheduler: &Scheduler) -> Option<Task> {
        with_queue(|queue| retry(|| scheduler.common.steal_batch_and_pop(queue)))
    }

    fn steal(&mut self, scheduler: &Scheduler) -> Option<Task> {
        let version = scheduler.version.load(Ordering::Acquire);
        if version != self.version {
            let workers = scheduler.workers.read();
            let others = workers.iter().filter(|(id, _)| **id != self.id);
            self.others = others.map(|(_, stealer)| stealer.clone()).collect();
            self.version = version;
        }
        // Half of what another has, so that the two don't meet again for the next one.
        let steal = |other: &Stealer<Task>| with_queue(|queue| retry(|| other.steal_batch_and_pop(queue)));
        self.others.iter().find_map(steal)
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

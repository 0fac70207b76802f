//! A worker thread: its run queue, and how it searches for work.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_deque::{Steal, Stealer, Worker};

use crate::scheduler::{Scheduler, Task, WakeMode};
use crate::sync::Parker;
use crate::tuning::INJECTOR_EVERY;

thread_local! {
    // No destructor, because access to a thread-local with one is slower. A worker takes the value out when it ends.
    static LOCAL: ManuallyDrop<RefCell<Option<Local>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// The run queue of this thread's worker.
struct Local {
    /// The scheduler it works for: a process may have several.
    scheduler: Arc<Scheduler>,
    queue: Worker<Task>,
    /// A task was queued without waking another worker.
    wake_pending: bool,
}

/// Makes this thread a worker of a scheduler.
pub(crate) fn begin(scheduler: Arc<Scheduler>, queue: Worker<Task>) {
    let local = Local {
        scheduler,
        queue,
        wake_pending: false,
    };
    LOCAL.with(|slot| slot.replace(Some(local)));
}

/// Ends this thread's worker; returns the rest of its run queue.
pub(crate) fn end() -> impl Iterator<Item = Task> {
    let local = LOCAL.with(|local| local.take()).expect("this thread is a worker");
    std::iter::from_fn(move || local.queue.pop())
}

/// Enqueues a task into this worker's run queue; returns it if this thread is no worker of the task's scheduler.
#[inline]
pub(crate) fn push(task: Task, wake: WakeMode) -> Option<Task> {
    LOCAL.with(|local| match &mut *local.borrow_mut() {
        Some(local) if Arc::ptr_eq(&local.scheduler, task.scheduler()) => {
            local.queue.push(task);
            match wake {
                WakeMode::Now => local.scheduler.wake_one(),
                WakeMode::Later => {
                    local.wake_pending = true;
                    local.scheduler.idle_workers.ensure_watcher();
                }
            }
            None
        }
        _ => Some(task),
    })
}

/// Whether the run queue holds more than the next task and no other worker was woken for it.
pub(crate) fn take_pending_wake() -> bool {
    LOCAL.with(|local| {
        let mut local = local.borrow_mut();
        let local = local.as_mut().expect("this thread is a worker");
        std::mem::take(&mut local.wake_pending) && local.queue.len() > 1
    })
}

/// Whether this worker's run queue is non-empty.
pub(crate) fn has_local_work() -> bool {
    LOCAL.with(|local| local.borrow().as_ref().is_some_and(|local| !local.queue.is_empty()))
}

fn with_queue<T>(run: impl FnOnce(&Worker<Task>) -> T) -> T {
    LOCAL.with(|local| run(&local.borrow().as_ref().expect("this thread is a worker").queue))
}

/// A worker's search for tasks: own run queue, injector queue, then work stealing.
pub(crate) struct Search {
    id: u64,
    parker: Parker,
    ticks: u32,
    others: Vec<Stealer<Task>>,
    version: u64,
    /// Whether this worker counts as searching.
    begun: bool,
}

impl Search {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            parker: Parker::new(),
            ticks: 0,
            others: Vec::new(),
            version: u64::MAX,
            begun: false,
        }
    }

    pub(crate) fn next(&mut self, scheduler: &Scheduler) -> Option<Task> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(INJECTOR_EVERY)
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
        let found = self.take_injected(scheduler).or_else(|| self.steal(scheduler));
        match found {
            Some(_) => self.found(scheduler),
            None => _ = self.end(scheduler),
        }
        found
    }

    /// Parks until woken, unless `ready` returns true.
    pub(crate) fn park(&mut self, scheduler: &Scheduler, workers: impl Fn() -> usize, ready: impl Fn() -> bool) {
        self.end(scheduler);
        self.begun = scheduler.idle_workers.park(self.id, &self.parker, workers, ready);
    }

    /// Ends the search because a task was found.
    fn found(&mut self, scheduler: &Scheduler) {
        // While this worker searched, no other was woken. If there is more work, another one is needed.
        if self.end(scheduler) && scheduler.has_work() {
            scheduler.wake_one();
        }
    }

    /// Ends the search, if there is one; returns whether this worker was the last one searching.
    pub(crate) fn end(&mut self, scheduler: &Scheduler) -> bool {
        std::mem::take(&mut self.begun) && scheduler.idle_workers.end_search()
    }

    fn take_injected(&self, scheduler: &Scheduler) -> Option<Task> {
        with_queue(|queue| retry(|| scheduler.injector.steal_batch_and_pop(queue)))
    }

    fn steal(&mut self, scheduler: &Scheduler) -> Option<Task> {
        let version = scheduler.version.load(Ordering::Acquire);
        if version != self.version {
            let workers = scheduler.workers.read();
            let others = workers.iter().filter(|(id, _)| **id != self.id);
            self.others = others.map(|(_, stealer)| stealer.clone()).collect();
            self.version = version;
        }
        // Half of the victim's queue, so that the two do not contend for the next task.
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

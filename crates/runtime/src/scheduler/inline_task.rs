//! Threads that deliver messages and run the target themselves.
//!
//! A connection reader is awake, while the workers are most likely parked. So the first cell that its messages make
//! runnable is kept for the reader's own thread: running it costs no wake-up, and messages that arrived together are
//! answered together. Further runnable cells go to the workers as usual.

use std::cell::RefCell;
use std::sync::Arc;

use crate::scheduler::{Scheduler, Task};

thread_local! {
    /// The cell that this thread made runnable and has not run, while it delivers messages.
    static DELIVERED: RefCell<Option<Delivered>> = const { RefCell::new(None) };
}

struct Delivered {
    /// The scheduler it delivers for: a process may have several.
    scheduler: Arc<Scheduler>,
    task: Option<Task>,
}

/// Guard of a thread that delivers messages.
struct Delivering<'a>(&'a Arc<Scheduler>);

impl<'a> Delivering<'a> {
    fn begin(scheduler: &'a Arc<Scheduler>) -> Self {
        let begun = Delivered {
            scheduler: Arc::clone(scheduler),
            task: None,
        };
        let outer = DELIVERED.replace(Some(begun));
        assert!(outer.is_none(), "inline delivery must not nest");
        Self(scheduler)
    }

    fn end(self) -> Option<InlineTask> {
        let Delivered { scheduler, task } = DELIVERED.take()?;
        task.map(|task| InlineTask {
            scheduler,
            task: Some(task),
        })
    }
}

impl Drop for Delivering<'_> {
    /// Also after a panic, so that a runnable cell still runs.
    fn drop(&mut self) {
        if let Some(task) = DELIVERED.take().and_then(|delivered| delivered.task) {
            self.0.offer(task);
        }
    }
}

/// A runnable cell whose messages this thread has delivered. Its owner runs it promptly; if dropped, a worker runs it.
#[must_use]
pub struct InlineTask {
    scheduler: Arc<Scheduler>,
    task: Option<Task>,
}

impl InlineTask {
    /// Delivers messages; returns the cell that became runnable, if this thread may run it.
    pub(crate) fn deliver_inline(scheduler: &Arc<Scheduler>, deliver: impl FnOnce()) -> Option<InlineTask> {
        // Only workers honour the CPU quota.
        if scheduler.is_limited() || scheduler.is_fenced() {
            deliver();
            return None;
        }
        let delivering = Delivering::begin(scheduler);
        deliver();
        delivering.end()
    }

    /// Runs the cell for about as long as a worker would.
    pub fn run(mut self) {
        if !self.scheduler.is_fenced_now()
            && let Some(task) = self.task.take()
        {
            task.run();
        }
    }
}

impl Drop for InlineTask {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.scheduler.offer(task);
        }
    }
}

/// Keeps a task for this thread if it delivers messages for the task's scheduler and has kept none yet; else returns
/// it.
pub(crate) fn try_keep(task: Task) -> Option<Task> {
    DELIVERED.with_borrow_mut(|delivered| match delivered {
        Some(delivered) if delivered.task.is_none() && Arc::ptr_eq(&delivered.scheduler, task.scheduler()) => {
            delivered.task = Some(task);
            None
        }
        _ => Some(task),
    })
}

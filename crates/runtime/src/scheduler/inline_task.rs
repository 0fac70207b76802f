//! Threads that bring mail and run it themselves.
//!
//! Whoever reads a connection has a thread that is awake, while the workers most likely sleep. So the first activation that
//! its mail makes runnable is kept for that very thread: running it costs no wake-up, and what came together is answered
//! together. Whatever else becomes runnable goes to the workers as usual.

use std::cell::RefCell;
use std::sync::Arc;

use crate::scheduler::{Scheduler, Task};

thread_local! {
    /// What this thread has brought and not run, while it brings mail.
    static DELIVERED: RefCell<Option<Delivered>> = const { RefCell::new(None) };
}

struct Delivered {
    /// For which scheduler: there may be several in a process.
    scheduler: Arc<Scheduler>,
    task: Option<Task>,
}

/// This thread brings mail until this is dropped.
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
    /// Also after a panic, so that what became runnable runs.
    fn drop(&mut self) {
        if let Some(task) = DELIVERED.take().and_then(|brought| brought.task) {
            self.0.offer(task);
        }
    }
}

/// An activation that can run, with mail that this thread has brought: whoever has it runs it soon, or drops it, and then a
/// worker does.
#[must_use]
pub struct InlineTask {
    scheduler: Arc<Scheduler>,
    task: Option<Task>,
}

impl InlineTask {
    /// Brings mail; if that makes an activation runnable which this thread may run, gives it.
    pub(crate) fn deliver_inline(scheduler: &Arc<Scheduler>, deliver_inline: impl FnOnce()) -> Option<InlineTask> {
        // Only workers keep to a CPU share.
        if scheduler.is_limited() || scheduler.is_fenced() {
            deliver_inline();
            return None;
        }
        let bringing = Delivering::begin(scheduler);
        deliver_inline();
        bringing.end()
    }

    /// Runs the activation for about as long as a worker would.
    pub fn run(mut self) {
        if !self.scheduler.look_whether_fenced()
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

/// Keeps something for this thread, if it brings mail for its scheduler and has nothing else to run; else gives it back.
pub(crate) fn keep(task: Task) -> Option<Task> {
    DELIVERED.with_borrow_mut(|brought| match brought {
        Some(brought) if brought.task.is_none() && Arc::ptr_eq(&brought.scheduler, task.scheduler()) => {
            brought.task = Some(task);
            None
        }
        _ => Some(task),
    })
}

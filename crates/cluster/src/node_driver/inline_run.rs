//! Turns that run inline on the thread that reads a connection: see [`elastin_runtime::InlineTask`].
//!
//! The executor handles the replies of an inline task in batches, so that they are written together.

use std::cell::Cell;
use std::time::{Duration, Instant};

use elastin_protocol::Event;
use elastin_runtime::InlineTask;

use super::DriverInner;

/// The most replies in a batch.
const REPLY_BATCH_MAX: usize = 64;

/// The longest that the first reply of a batch is delayed.
const REPLY_DELAY_MAX: Duration = Duration::from_micros(50);

thread_local! {
    /// The inline task that this thread runs.
    static INLINE_RUN: Cell<Option<InlineRun>> = const { Cell::new(None) };
}

/// A running inline task.
#[derive(Clone, Copy)]
struct InlineRun {
    /// The address of its driver, because a process may have several.
    driver: usize,
    /// When its replies were last flushed.
    flushed_at: Instant,
}

/// Ends the inline task and flushes its replies, also after a panic.
struct EndInlineRun<'a>(&'a DriverInner);

impl Drop for EndInlineRun<'_> {
    fn drop(&mut self) {
        INLINE_RUN.set(None);
        self.0.serial_executor.catch_up_and_flush(self.0);
    }
}

impl DriverInner {
    /// Runs an inline task on this thread.
    pub(super) fn run_inline_task(&self, inline_task: InlineTask) {
        let flushed_at = Instant::now();
        let driver = self.address();
        INLINE_RUN.set(Some(InlineRun { driver, flushed_at }));
        let _end = EndInlineRun(self);
        inline_task.run();
    }

    /// A call that was delivered here has completed.
    pub(super) fn replied(&self, event: Event) {
        let Some(run) = INLINE_RUN.get().filter(|run| run.driver == self.address()) else {
            return self.handle(event);
        };
        let queued = self.serial_executor.enqueue(event);
        let now = Instant::now();
        if queued >= REPLY_BATCH_MAX || now.duration_since(run.flushed_at) >= REPLY_DELAY_MAX {
            self.serial_executor.catch_up_and_flush(self);
            let flushed_at = now;
            INLINE_RUN.set(Some(InlineRun { flushed_at, ..run }));
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

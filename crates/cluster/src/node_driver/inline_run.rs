//! Turns that run inline on the thread that reads a connection: see [`elastin_runtime::InlineTask`].
//!
//! The executor handles the replies of an inline task in batches, so that they are written together.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use elastin_protocol::Event;
use elastin_runtime::InlineTask;

use super::DriverInner;
use crate::transport::FollowUp;
use crate::tuning::{REPLY_BATCH_MAX, REPLY_DELAY_MAX};

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
    /// Handles received events. The first actor that they reach is left to the thread that has read them.
    pub(super) fn handle_inline(self: &Arc<Self>, events: impl IntoIterator<Item = Event>) -> Option<FollowUp> {
        let inline_task = self
            .runtime()
            .deliver_inline(|| self.serial_executor.handle_all(events, &**self))?;
        let this = Arc::clone(self);
        Some(FollowUp::Run(Box::new(move || this.run_inline_task(inline_task))))
    }

    /// Runs an inline task on this thread.
    fn run_inline_task(&self, inline_task: InlineTask) {
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
        let queued = self.serial_executor.enqueue(event.into());
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

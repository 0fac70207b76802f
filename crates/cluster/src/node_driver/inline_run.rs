//! What the thread that reads a connection runs itself: see [`elastin_runtime::InlineTask`].
//!
//! The replies of such a visit are taken in by the executor together, so that they leave together.

use std::cell::Cell;
use std::time::{Duration, Instant};

use elastin_protocol::Event;
use elastin_runtime::InlineTask;

use super::Inner;

/// How many replies wait for each other, at most.
const REPLIES_TOGETHER: usize = 64;

/// How long they do.
const REPLIES_WAIT_MAX: Duration = Duration::from_micros(50);

thread_local! {
    /// The inline task that this thread is on.
    static INLINE_RUN: Cell<Option<Running>> = const { Cell::new(None) };
}

/// An inline task that is being run.
#[derive(Clone, Copy)]
struct Running {
    /// For which peer: there may be several in a process.
    peer: usize,
    /// When the executor last took in its replies.
    caught_up_at: Instant,
}

/// Ends an inline task, also if it panics.
struct End<'a>(&'a Inner);

impl Drop for End<'_> {
    fn drop(&mut self) {
        INLINE_RUN.set(None);
        self.0.serial_executor.catch_up_and_send(self.0);
    }
}

impl Inner {
    /// Runs an inline task on this thread.
    pub(super) fn run_inline_task(&self, inline_task: InlineTask) {
        let caught_up_at = Instant::now();
        let peer = self.address();
        INLINE_RUN.set(Some(Running { peer, caught_up_at }));
        let _end = End(self);
        inline_task.run();
    }

    /// A call that was delivered here has ended.
    pub(super) fn replied(&self, event: Event) {
        let Some(running) = INLINE_RUN.get().filter(|running| running.peer == self.address()) else {
            return self.handle(event);
        };
        let waiting = self.serial_executor.leave(event);
        let now = Instant::now();
        if waiting >= REPLIES_TOGETHER || now.duration_since(running.caught_up_at) >= REPLIES_WAIT_MAX {
            self.serial_executor.catch_up_and_send(self);
            let caught_up_at = now;
            INLINE_RUN.set(Some(Running {
                caught_up_at,
                ..running
            }));
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

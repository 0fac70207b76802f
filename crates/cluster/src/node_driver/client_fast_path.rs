//! The calls of local callers to other nodes, with few thread wake-ups.
//!
//! A lone caller polls the connection for its reply on its own thread. Callers that are completed together mostly call again at
//! once. They enqueue their calls, and the task that read the replies sends these together once all callers have run.
//!
//! ```text
//!   replies ──► callers are completed ──► they run, and each enqueues its call ──► all calls are handled and written at once
//! ```
//!
//! Otherwise each caller would handle its call on whichever thread it runs, and the state of the connection would bounce between
//! cores with every call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use elastin_protocol::Event;

use super::DriverInner;
use super::deferred_wakes::{DeferredWakes, wake_after_yield};
use crate::pending_calls::Completions;
use crate::serial_executor::{CommandContext, CommandExecutor, Input, SerialExecutor};
use crate::transport::{FlushMode, FollowUp, Link, Steps};
use crate::tuning::{BATCH_WAIT_MAX, BATCHED_CALLERS_MIN, BATCHED_CALLS_MAX};

/// State of the fast path.
#[derive(Default)]
pub(super) struct ClientFastPath {
    /// Whether callers enqueue their calls for the batching task instead of sending them.
    batches_calls: AtomicBool,
    /// The number of the latest batch.
    batch: AtomicU64,
    /// The total of inputs at which every caller of the batch has sent its next call.
    batch_until: AtomicU64,
    /// The wakers of the batching task and its callers.
    deferred_wakes: DeferredWakes,
}

/// Flushes the frames of a call. Returns the link of its reply if no other call is pending.
fn flush_lone_call(context: &mut CommandContext) -> Option<Arc<Link>> {
    let is_lone = context.pending_calls.len() == 1;
    let link = context.outbox.only_link().filter(|_| is_lone);
    context.outbox.flush(match is_lone {
        true => FlushMode::NowAwaited,
        false => FlushMode::Coalesce,
    });
    link
}

impl ClientFastPath {
    /// Sends a message of a client. A client hosts no actors, so no local fast path could let a later message overtake this one,
    /// and it may be left to another thread. A lone caller busy-polls for its reply.
    pub(super) fn send(&self, node: &SerialExecutor, input: Input, executor: &impl CommandExecutor) {
        if self.batches_calls.load(Ordering::Relaxed) {
            return self.enqueue(node, input, executor);
        }
        if input.caller.is_none() {
            return node.handle(input, executor);
        }
        let notified = node.notified();
        if let Some(link) = node.handle_and(input, executor, flush_lone_call).flatten() {
            link.busy_poll(&|| node.notified() != notified, &|| node.pending_calls() == 0);
        }
    }

    /// Enqueues a call for the batching task.
    fn enqueue(&self, node: &SerialExecutor, input: Input, executor: &impl CommandExecutor) {
        let queued = node.enqueue(input);
        // Checked again: the batching task clears the flag before it drains the queue for the last time.
        if queued >= BATCHED_CALLS_MAX || !self.batches_calls.load(Ordering::Relaxed) {
            node.catch_up_and_flush(executor);
        } else if queued == 1 {
            executor.wake_at(Some(executor.now() + BATCH_WAIT_MAX));
        }
    }

    /// Handles events that a tokio `task` has received. If several callers are completed, their next calls are enqueued for the
    /// task, and it must call [`ClientFastPath::send_batch`] until that returns false. Returns the number of the batch.
    fn handle_and_batch(
        &self,
        node: &SerialExecutor,
        events: impl IntoIterator<Item = Event>,
        task: &Waker,
        executor: &impl CommandExecutor,
    ) -> Option<u64> {
        // Waits for the lock: a thread that drains for this one would complete the callers without batching their next calls.
        let completions = node.handle_all_silently(events, executor);
        if completions.len() < BATCHED_CALLERS_MIN {
            node.notify(completions, Completions::notify);
            node.catch_up(executor);
            return None;
        }
        let until = node.enqueued() + completions.len() as u64;
        self.batch_until.store(until, Ordering::Relaxed);
        self.batches_calls.store(true, Ordering::Relaxed);
        let now = executor.now();
        node.notify(completions, |completions| {
            self.deferred_wakes.defer(now, task, completions.fill());
        });
        executor.wake_at(Some(now + BATCH_WAIT_MAX));
        Some(1 + self.batch.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends the batched calls. Returns whether batching continues: it ends with an empty or complete batch, or without
    /// `keep_batching`.
    fn send_batch(&self, node: &SerialExecutor, keep_batching: bool, executor: &impl CommandExecutor) -> bool {
        let is_complete = || node.enqueued() >= self.batch_until.load(Ordering::Relaxed);
        let batches_calls = keep_batching && node.queued() > 0 && !is_complete();
        if batches_calls {
            let now = executor.now();
            self.deferred_wakes.clear_callers(now);
            executor.wake_at(Some(now + BATCH_WAIT_MAX));
            // Calls enqueued from now on belong to the next batch.
            node.flush_queued(executor);
        } else {
            self.deferred_wakes.clear();
            self.batches_calls.store(false, Ordering::Relaxed);
            node.catch_up_and_flush(executor);
        }
        batches_calls
    }

    /// Wakes the batching task and its callers if tokio has delayed them for too long.
    pub(super) fn wake_overdue(&self, executor: &impl CommandExecutor) {
        if let Some(since) = self.deferred_wakes.wake_overdue(executor.now() - BATCH_WAIT_MAX) {
            executor.wake_at(Some(since + BATCH_WAIT_MAX));
        }
    }
}

impl DriverInner {
    /// Handles events that a tokio `task` has received, and returns the steps that send the calls batched for it.
    pub(super) fn handle_and_batch(&self, events: impl IntoIterator<Item = Event>, task: &Waker) -> Option<FollowUp> {
        let batch = self
            .fast_path
            .handle_and_batch(&self.serial_executor, events, task, self)?;
        Some(FollowUp::Steps(Box::new(BatchSteps {
            driver: self.this.clone(),
            batch,
            next: NextStep::AwaitCallers,
        })))
    }
}

/// Sends the batched calls once all callers have run. Dropping it ends the batch.
struct BatchSteps {
    driver: Weak<DriverInner>,
    batch: u64,
    next: NextStep,
}

enum NextStep {
    /// The task is woken together with the callers, and runs after them.
    AwaitCallers,
    /// Some callers have not run yet.
    Yield,
    Send,
}

impl BatchSteps {
    fn send(&self, keep_batching: bool) -> bool {
        let driver = self.driver.upgrade();
        driver.is_some_and(|driver| {
            driver
                .fast_path
                .send_batch(&driver.serial_executor, keep_batching, &*driver)
        })
    }

    /// Whether no other batch has replaced it.
    fn is_latest(&self) -> bool {
        let driver = self.driver.upgrade();
        driver.is_some_and(|driver| driver.fast_path.batch.load(Ordering::Relaxed) == self.batch)
    }
}

impl Steps for BatchSteps {
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        match self.next {
            NextStep::AwaitCallers => {
                self.next = NextStep::Send;
                Poll::Pending
            }
            NextStep::Yield => {
                self.next = NextStep::Send;
                wake_after_yield(context.waker());
                Poll::Pending
            }
            NextStep::Send => {
                self.next = NextStep::Yield;
                Poll::Ready(self.send(true))
            }
        }
    }
}

impl Drop for BatchSteps {
    fn drop(&mut self) {
        if self.is_latest() {
            self.send(false);
        }
    }
}

#[cfg(test)]
mod tests;

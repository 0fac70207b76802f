//! Batches the calls that follow a batch of replies. Callers that are completed together mostly call again at once. They enqueue
//! their calls, and the task that read the replies sends these together once all callers have run.
//!
//! ```text
//!   replies ──► callers are completed ──► they run, and each enqueues its call ──► all calls are handled and written at once
//! ```
//!
//! Otherwise each caller would handle its call on whichever thread it runs, and the state of the connection would bounce between
//! cores with every call.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::yield_now;

use super::Receiver;

/// Calls are batched while this is alive.
pub(super) struct CallBatching {
    receiver: Arc<dyn Receiver>,
    /// Whether this task was woken together with the callers.
    is_woken: bool,
}

impl CallBatching {
    /// Begins batching, or continues it, for callers that were just completed and woken together with this task.
    pub(super) fn begin_or_continue(before: Option<Self>, receiver: &Arc<dyn Receiver>) -> Self {
        let mut call_batching = before.unwrap_or_else(|| Self {
            receiver: Arc::clone(receiver),
            is_woken: false,
        });
        call_batching.is_woken = true;
        call_batching
    }

    /// Yields to the callers and sends the calls that they enqueued. Returns none when batching has ended.
    pub(super) async fn yield_and_flush(mut self) -> Option<Self> {
        if std::mem::take(&mut self.is_woken) {
            let mut has_yielded = false;
            poll_fn(|_| match std::mem::replace(&mut has_yielded, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        } else {
            yield_now().await;
        }
        self.receiver.flush_batch(true).then_some(self)
    }
}

impl Drop for CallBatching {
    fn drop(&mut self) {
        self.receiver.flush_batch(false);
    }
}

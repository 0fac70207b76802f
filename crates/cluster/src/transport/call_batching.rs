//! Whoever reads replies sends what comes of them. PendingCalls that receive of their outcomes together mostly call again at once; they leave
//! their calls, and when all of them have had their turn these are taken in together.
//!
//! ```text
//!   replies ──► callers are told ──► they run, and each leaves its call ──► all calls are taken in, and written at once
//! ```
//!
//! Otherwise each caller would take in its call by itself, on whichever thread it runs, and all that belongs to a connection would
//! go from core to core with every call.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::yield_now;

use super::Receiver;

/// PendingCalls leave what they send for as long as this lives.
pub(super) struct CallBatching {
    receiver: Arc<dyn Receiver>,
    /// Some have just been told to, and this task is woken along with them.
    is_woken: bool,
}

impl CallBatching {
    /// Some have just been told to, and this task is woken along with them. They may not be the first.
    pub(super) fn goes_on(before: Option<Self>, receiver: &Arc<dyn Receiver>) -> Self {
        let mut call_batching = before.unwrap_or_else(|| Self {
            receiver: Arc::clone(receiver),
            is_woken: false,
        });
        call_batching.is_woken = true;
        call_batching
    }

    /// Lets them have their turn and sends what they leave; none if there is no more to come, and gathering has ended.
    pub(super) async fn give_way_and_send(mut self) -> Option<Self> {
        if std::mem::take(&mut self.is_woken) {
            let mut has_given_way = false;
            poll_fn(|_| match std::mem::replace(&mut has_given_way, true) {
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

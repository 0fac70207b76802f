//! Whoever reads replies sends what comes of them. Callers that hear of their outcomes together mostly call again at once; they leave
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

/// Callers leave what they send for as long as this lives.
pub(super) struct Gathering {
    receiver: Arc<dyn Receiver>,
    /// Some have just been told to, and this task is woken along with them.
    is_woken: bool,
}

impl Gathering {
    /// Some have just been told to, and this task is woken along with them. They may not be the first.
    pub(super) fn goes_on(before: Option<Self>, receiver: &Arc<dyn Receiver>) -> Self {
        let mut gathering = before.unwrap_or_else(|| Self {
            receiver: Arc::clone(receiver),
            is_woken: false,
        });
        gathering.is_woken = true;
        gathering
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
        self.receiver.send_gathered(true).then_some(self)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.receiver.send_gathered(false);
    }
}

//! Whoever reads replies sends what comes of them. Callers that hear of their outcomes together mostly call again at once; they leave
//! their calls, and when all of them have had their turn these are taken in together.
//!
//! ```text
//!   replies ──► callers are told ──► they run, and each leaves its call ──► all calls are taken in, and written at once
//! ```
//!
//! Otherwise each caller would take in its call by itself, on whichever thread it runs, and all that belongs to a connection would
//! go from core to core with every call.

use std::sync::Arc;

use super::Receiver;

/// Callers leave what they send for as long as this lives.
pub(super) struct Gathering {
    receiver: Arc<dyn Receiver>,
}

impl Gathering {
    /// They were told to, because somebody is about to come for it.
    pub(super) fn begun(receiver: &Arc<dyn Receiver>) -> Self {
        Self {
            receiver: Arc::clone(receiver),
        }
    }

    /// Sends what they have left; none if that was nothing, and gathering has ended.
    pub(super) fn send(self) -> Option<Self> {
        self.receiver.send_gathered(true).then_some(self)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.receiver.send_gathered(false);
    }
}

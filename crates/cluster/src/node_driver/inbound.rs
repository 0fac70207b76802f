//! What reaches the node from the network, and from its timer clock.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use bytes::Bytes;
use elastin_protocol::Event;
use elastin_runtime::InlineTask;
use elastin_types::NodeId;
use tokio::runtime::Handle;

use super::Inner;
use crate::frame::{Class, FrameError, Frames};
use crate::serial_executor::{CommandExecutor, Completed};
use crate::transport::{ReceiveOutcome, Receiver};
use crate::wire_codec;

/// What the transport tells a peer, without keeping it alive.
pub(super) struct InboundHandler(pub(super) Weak<Inner>);

impl Receiver for InboundHandler {
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, comes_again: Option<&Waker>) -> Option<ReceiveOutcome> {
        let inner = self.0.upgrade()?;
        let mut others = Vec::new();
        // What came together is taken in together, so that its answers leave together.
        let events = std::iter::from_fn(|| {
            loop {
                match frames.next()? {
                    (Class::Protocol, payload) => match wire_codec::get(payload) {
                        Ok(frame) => return Some(Event::Frame { from, frame }),
                        Err(error) => {
                            // It would be said again for ever, and nothing that follows it can be heard.
                            frames.refuse(FrameError::Undecodable(error.to_string()));
                            return None;
                        }
                    },
                    other => others.push(other),
                }
            }
        });
        let mut completed = Completed::None;
        let inline_task = inner.runtime().deliver_inline(|| match comes_again {
            Some(task) => completed = inner.serial_executor.handle_all_and_batch(events, task, &*inner),
            None => inner.serial_executor.handle_all(events, &*inner),
        });
        // Apart, because whoever hears of these may look at the executor.
        for (class, payload) in others {
            if let Err(error) = inner.receive(from, class, payload) {
                frames.refuse(error);
            }
        }
        match completed {
            Completed::None => inline_task.map(ReceiveOutcome::InlineTask),
            Completed::One => Some(ReceiveOutcome::Outcome),
            Completed::Many => Some(ReceiveOutcome::Calls),
        }
    }

    fn run(&self, inline_task: InlineTask) {
        if let Some(inner) = self.0.upgrade() {
            inner.run_inline_task(inline_task);
        }
    }

    fn catch_up(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.serial_executor.catch_up(&*inner);
        }
    }

    fn flush_batch(&self, comes_again: bool) -> bool {
        let inner = self.0.upgrade();
        inner.is_some_and(|inner| inner.serial_executor.apply_batched(comes_again, &*inner))
    }

    fn link_up(&self, peer: NodeId) {
        if let Some(inner) = self.0.upgrade() {
            inner.handle(Event::LinkUp { peer });
        }
    }

    fn link_down(&self, peer: NodeId) {
        if let Some(inner) = self.0.upgrade() {
            inner.handle(Event::LinkDown { peer });
        }
    }
}

impl Inner {
    /// Takes in a frame that is none of the protocol's.
    fn receive(&self, from: NodeId, class: Class, payload: &[u8]) -> Result<(), FrameError> {
        match class {
            Class::Control | Class::Admin => self.above.frame(from, class, Bytes::copy_from_slice(payload)),
            Class::Reminder => {
                let note = postcard::from_bytes(payload);
                let note = note.map_err(|error| FrameError::Undecodable(error.to_string()))?;
                self.reminders.note(note);
            }
            Class::Handshake | Class::Protocol => return Err(FrameError::OutOfPlace(class)),
        }
        Ok(())
    }
}

/// Wakes the executor when it wants to be woken: for the runtime's timers, without keeping the peer alive.
pub(super) struct TimerWaker {
    inner: Weak<Inner>,
    /// The timers' thread is none of tokio's, but what the executor wants done may spawn tasks.
    handle: Handle,
}

impl TimerWaker {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::downgrade(inner),
            handle: Handle::current(),
        }
    }
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else { return };
        if inner.timer.has_rung(inner.now()) {
            let _tokio = self.handle.enter();
            // The timer is set anew when the executor has taken this in.
            inner.serial_executor.wake(&*inner);
        }
    }
}

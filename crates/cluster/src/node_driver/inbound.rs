//! Inbound events of a node: frames and link changes from the transport, and timers.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use bytes::Bytes;
use elastin_protocol::Event;
use elastin_types::NodeId;
use tokio::runtime::Handle;

use super::DriverInner;
use crate::frame::{self, Class, FrameError, Frames};
use crate::serial_executor::CommandExecutor;
use crate::transport::{FollowUp, Receiver};

/// Passes the transport's events to the driver, without keeping it alive.
pub(super) struct InboundHandler(pub(super) Weak<DriverInner>);

impl Receiver for InboundHandler {
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, task: Option<&Waker>) -> Option<FollowUp> {
        let inner = self.0.upgrade()?;
        let mut others = Vec::new();
        // Frames that arrive together are handled as one batch, so that their replies are written together.
        let events = std::iter::from_fn(|| {
            loop {
                match frames.next()? {
                    (Class::Protocol, payload) => match frame::get_protocol(payload) {
                        Ok(frame) => return Some(Event::Frame { from, frame }),
                        Err(error) => {
                            // The peer would retransmit it for ever, and no later frame can be accepted before it.
                            frames.refuse(error);
                            return None;
                        }
                    },
                    other => others.push(other),
                }
            }
        });
        let follow_up = match task {
            Some(task) => inner.handle_and_batch(events, task),
            None => inner.handle_inline(events),
        };
        // Handled after the batch, because the callbacks may read the executor.
        for (class, payload) in others {
            if let Err(error) = inner.receive(from, class, payload) {
                frames.refuse(error);
            }
        }
        follow_up
    }

    fn follow_up_is_late(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.serial_executor.catch_up(&*inner);
        }
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

impl DriverInner {
    /// Handles a frame of a class other than [`Class::Protocol`].
    fn receive(&self, from: NodeId, class: Class, payload: &[u8]) -> Result<(), FrameError> {
        match class {
            Class::Control | Class::Admin => self.callbacks.frame(from, class, Bytes::copy_from_slice(payload)),
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

/// Wakes the executor for a due timer, without keeping the driver alive.
pub(super) struct TimerWaker {
    inner: Weak<DriverInner>,
    /// The timer thread is outside tokio, but executing commands may spawn tokio tasks.
    handle: Handle,
}

impl TimerWaker {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(inner: &Arc<DriverInner>) -> Self {
        Self {
            inner: Arc::downgrade(inner),
            handle: Handle::current(),
        }
    }
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else { return };
        if inner.timer.take_due(inner.now()) {
            let _tokio = self.handle.enter();
            // The executor sets the timer again afterwards.
            inner.handle(Event::Timer);
            inner.fast_path.wake_overdue(&*inner);
        }
    }
}

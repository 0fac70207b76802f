//! What reaches the node from the network, and from its alarm clock.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use bytes::Bytes;
use elastin_protocol::Event;
use elastin_runtime::Errand;
use elastin_types::NodeId;
use tokio::runtime::Handle;

use super::Inner;
use crate::frame::{Class, FrameError, Frames};
use crate::machine::{Hands, Told};
use crate::protocol_frame;
use crate::transport::{Following, Receiver};

/// What the transport tells a peer, without keeping it alive.
pub(super) struct Ear(pub(super) Weak<Inner>);

impl Receiver for Ear {
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, comes_again: Option<&Waker>) -> Option<Following> {
        let inner = self.0.upgrade()?;
        let mut others = Vec::new();
        // What came together is taken in together, so that its answers leave together.
        let events = std::iter::from_fn(|| {
            loop {
                match frames.next()? {
                    (Class::Protocol, payload) => match protocol_frame::get(payload) {
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
        let mut told = Told::Nobody;
        let errand = inner.runtime().bring(|| match comes_again {
            Some(task) => told = inner.machine.handle_all_and_gather(events, task, &*inner),
            None => inner.machine.handle_all(events, &*inner),
        });
        // Apart, because whoever hears of these may look at the machine.
        for (class, payload) in others {
            if let Err(error) = inner.hear(from, class, payload) {
                frames.refuse(error);
            }
        }
        match told {
            Told::Nobody => errand.map(Following::Errand),
            Told::One => Some(Following::Outcome),
            Told::Several => Some(Following::Calls),
        }
    }

    fn run(&self, errand: Errand) {
        if let Some(inner) = self.0.upgrade() {
            inner.run_errand(errand);
        }
    }

    fn catch_up(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.machine.catch_up(&*inner);
        }
    }

    fn send_gathered(&self, comes_again: bool) -> bool {
        let inner = self.0.upgrade();
        inner.is_some_and(|inner| inner.machine.take_in_gathered(comes_again, &*inner))
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
    fn hear(&self, from: NodeId, class: Class, payload: &[u8]) -> Result<(), FrameError> {
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

/// Wakes the machine when it wants to be woken: for the runtime's timers, without keeping the peer alive.
pub(super) struct Ringer {
    inner: Weak<Inner>,
    /// The timers' thread is none of tokio's, but what the machine wants done may spawn tasks.
    handle: Handle,
}

impl Ringer {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::downgrade(inner),
            handle: Handle::current(),
        }
    }
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else { return };
        if inner.alarm.has_rung(inner.now()) {
            let _tokio = self.handle.enter();
            // The alarm is set anew when the machine has taken this in.
            inner.machine.wake(&*inner);
        }
    }
}

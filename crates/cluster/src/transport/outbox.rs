//! Frames of the protocol that leave together.

use std::sync::Arc;

use elastin_protocol::Frame;
use elastin_types::NodeId;

use super::link::Link;
use super::{SendError, Transport};
use crate::frame;

/// So many frames to one peer wait for each other at most: enough that a write pays, few enough that the first ones are not
/// held up by the last.
const FRAMES_TOGETHER: usize = 64;

/// What somebody who has much to send at once puts its frames into: those for one peer are written together.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The peer of the last frame. What follows is most likely for the same one, whose link need not be looked up again.
    last: Option<(NodeId, Arc<Link>)>,
    /// How many frames were put there and have not been sent off.
    frames: usize,
}

/// Where a reply is to come from, most likely.
pub(crate) struct Awaited(Arc<Link>);

impl Awaited {
    /// Looks for it for a moment, until `is_there`.
    pub(crate) fn look(&self, is_there: impl Fn() -> bool) {
        self.0.look(is_there);
    }
}

impl Outbox {
    /// Where the reply to the last frame is to come from.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        let (_, link) = self.last.as_ref()?;
        Some(Awaited(Arc::clone(link)))
    }

    /// Puts a frame of the protocol behind those already put and sent to the peer, dialling it if need be. It leaves with
    /// [`Outbox::send_off`], or before.
    pub(crate) fn put(&mut self, transport: &Transport, to: NodeId, frame: &Frame) -> Result<(), SendError> {
        if self.frames >= FRAMES_TOGETHER {
            self.send_off();
        }
        let link = match self.last.take() {
            // A link that was closed may have a successor by now.
            Some((peer, link)) if peer == to && !link.is_closed() => link,
            other => {
                self.last = other;
                self.send_off();
                transport.inner.link(to)
            }
        };
        self.frames += 1;
        let taken = link.put(true, |out| frame::put_protocol(out, frame));
        self.last = Some((to, link));
        taken
    }

    /// Sends what was put.
    pub(crate) fn send_off(&mut self) {
        if let Some((_, link)) = self.last.as_ref().filter(|_| self.frames > 0) {
            link.flush();
            self.frames = 0;
        }
    }
}

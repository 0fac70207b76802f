//! Frames of the protocol that leave together.

use std::sync::Arc;

use elastin_protocol::Frame;
use elastin_types::NodeId;

use super::link::{FlushMode, Link};
use super::{SendError, Transport};
use crate::frame;

/// So many frames to one peer wait for each other at most: enough that a write pays, few enough that the first ones are not
/// held up by the last.
const FRAMES_TOGETHER: usize = 64;

/// So many peers are kept in mind: frames that come of one another go to few.
const PEERS_MAX: usize = 16;

/// What somebody who has much to send at once puts its frames into: those for one peer are written together.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The peers of the last frames, whose links need not be looked up again.
    open: Vec<Open>,
    /// Which of them got the very last one. What follows is most likely for the same.
    last: usize,
}

/// What was put for one peer.
struct Open {
    peer: NodeId,
    link: Arc<Link>,
    /// How many frames were put and have not been sent off.
    frames: usize,
}

/// Where a reply is to come from, most likely.
pub(crate) struct NowAwaited(Arc<Link>);

impl NowAwaited {
    /// Looks for it for a moment, until `is_there`. If `nobody_waits` for another one then, most likely somebody looks again soon.
    pub(crate) fn busy_poll(&self, is_there: impl Fn() -> bool, nobody_waits: impl FnOnce() -> bool) {
        self.0.busy_poll(is_there, nobody_waits);
    }
}

impl Outbox {
    /// Where the reply to the last frame is to come from.
    pub(crate) fn awaited(&self) -> Option<NowAwaited> {
        let last = self.open.get(self.last)?;
        Some(NowAwaited(Arc::clone(&last.link)))
    }

    /// Puts a frame of the protocol behind those already put and sent to the peer, dialling it if need be. It leaves with
    /// [`Outbox::send_off`], or before.
    pub(crate) fn put(&mut self, transport: &Transport, to: NodeId, frame: &Frame) -> Result<(), SendError> {
        let open = self.open(transport, to);
        if open.frames >= FRAMES_TOGETHER {
            open.send_off(FlushMode::Now);
        }
        open.frames += 1;
        open.link.put(true, |out| frame::put_protocol(out, frame))
    }

    /// Sends what was put.
    pub(crate) fn send_off(&mut self, flush_mode: FlushMode) {
        for open in &mut self.open {
            open.send_off(flush_mode);
        }
    }

    fn open(&mut self, transport: &Transport, peer: NodeId) -> &mut Open {
        let is_last = self.open.get(self.last).is_some_and(|open| open.peer == peer);
        if !is_last {
            self.last = self.find(transport, peer);
        }
        let open = &mut self.open[self.last];
        // A link that was closed may have a successor by now.
        if open.link.is_closed() {
            *open = Open::new(transport, peer);
        }
        open
    }

    /// Where this peer is among those that are kept in mind, from now on.
    fn find(&mut self, transport: &Transport, peer: NodeId) -> usize {
        if let Some(known) = self.open.iter().position(|open| open.peer == peer) {
            return known;
        }
        if self.open.len() == PEERS_MAX {
            self.send_off(FlushMode::Coalesce);
            self.open.clear();
        }
        self.open.push(Open::new(transport, peer));
        self.open.len() - 1
    }
}

impl Open {
    fn new(transport: &Transport, peer: NodeId) -> Self {
        Self {
            peer,
            link: transport.inner.link(peer),
            frames: 0,
        }
    }

    fn send_off(&mut self, flush_mode: FlushMode) {
        if self.frames > 0 {
            self.link.flush(flush_mode);
            self.frames = 0;
        }
    }
}

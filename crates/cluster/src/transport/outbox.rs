//! Protocol frames that are written together.

use std::sync::Arc;

use elastin_protocol::Frame;
use elastin_types::NodeId;

use super::link::{FlushMode, Link};
use super::{SendError, Transport};
use crate::frame;

/// The most frames to one peer in a batch: enough to amortize a write, few enough that the last ones do not delay the first.
const FRAME_BATCH_MAX: usize = 64;

/// The most peers whose links are cached: the frames of one batch of events go to few peers.
const PEERS_MAX: usize = 16;

/// Batches the frames of each peer, so that they are written together.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The links of the most recent peers, which saves their lookup.
    open: Vec<OpenLink>,
    /// The index of the most recent one, to which the next frame most likely goes.
    last: usize,
}

/// A cached link.
struct OpenLink {
    peer: NodeId,
    link: Arc<Link>,
    /// The number of frames that are not flushed yet.
    frames: usize,
}

/// A reply that a lone caller awaits, and the link that it most likely arrives on.
pub(crate) struct AwaitedReply(Arc<Link>);

impl AwaitedReply {
    /// Busy-polls for it until `is_done`: see [`Link::busy_poll`].
    pub(crate) fn busy_poll(&self, is_done: impl Fn() -> bool, none_pending: impl FnOnce() -> bool) {
        self.0.busy_poll(is_done, none_pending);
    }
}

impl Outbox {
    /// The reply to the last frame.
    pub(crate) fn awaited_reply(&self) -> Option<AwaitedReply> {
        let last = self.open.get(self.last)?;
        Some(AwaitedReply(Arc::clone(&last.link)))
    }

    /// Enqueues a protocol frame for a peer, dialling it if necessary. It is written by [`Outbox::flush`] at the latest.
    pub(crate) fn put(&mut self, transport: &Transport, to: NodeId, frame: &Frame) -> Result<(), SendError> {
        let open = self.open(transport, to);
        if open.frames >= FRAME_BATCH_MAX {
            open.flush(FlushMode::Now);
        }
        open.frames += 1;
        open.link.put(true, |out| frame::put_protocol(out, frame))
    }

    /// Flushes the frames of all peers.
    pub(crate) fn flush(&mut self, flush_mode: FlushMode) {
        for open in &mut self.open {
            open.flush(flush_mode);
        }
    }

    fn open(&mut self, transport: &Transport, peer: NodeId) -> &mut OpenLink {
        let is_last = self.open.get(self.last).is_some_and(|open| open.peer == peer);
        if !is_last {
            self.last = self.find(transport, peer);
        }
        let open = &mut self.open[self.last];
        // A closed link may have been replaced.
        if open.link.is_closed() {
            *open = OpenLink::new(transport, peer);
        }
        open
    }

    /// The index of the peer's cached link, which is added if necessary.
    fn find(&mut self, transport: &Transport, peer: NodeId) -> usize {
        if let Some(known) = self.open.iter().position(|open| open.peer == peer) {
            return known;
        }
        if self.open.len() == PEERS_MAX {
            self.flush(FlushMode::Coalesce);
            self.open.clear();
        }
        self.open.push(OpenLink::new(transport, peer));
        self.open.len() - 1
    }
}

impl OpenLink {
    fn new(transport: &Transport, peer: NodeId) -> Self {
        Self {
            peer,
            link: transport.inner.link(peer),
            frames: 0,
        }
    }

    fn flush(&mut self, flush_mode: FlushMode) {
        if self.frames > 0 {
            self.link.flush(flush_mode);
            self.frames = 0;
        }
    }
}

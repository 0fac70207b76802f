//! Protocol frames that are written together.

use std::sync::Arc;

use elastin_protocol::Frame;
use elastin_types::NodeId;

use crate::frame;
use crate::transport::{FlushMode, Link, SendError, Transport};
use crate::tuning::{OUTBOX_PEERS_MAX, SENT_FRAMES_MAX};

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

impl Outbox {
    /// The link of the last frame, on which its reply most likely arrives.
    pub(crate) fn last_link(&self) -> Option<Arc<Link>> {
        let last = self.open.get(self.last)?;
        Some(Arc::clone(&last.link))
    }

    /// Enqueues a protocol frame for a peer, dialling it if necessary. It is written by [`Outbox::flush`] at the latest.
    pub(crate) fn put(&mut self, transport: &Transport, to: NodeId, frame: &Frame) -> Result<(), SendError> {
        let open = self.open(transport, to);
        if open.frames >= SENT_FRAMES_MAX {
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
        if self.open.len() == OUTBOX_PEERS_MAX {
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
            link: transport.link(peer),
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

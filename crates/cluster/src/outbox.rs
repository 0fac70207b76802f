//! Protocol frames that are written together.

use std::sync::Arc;

use elastin_protocol::Frame;
use elastin_types::NodeId;

use crate::frame;
use crate::transport::{FlushMode, Link, SendError, Transport};
use crate::tuning::SENT_FRAMES_MAX;

/// Batches the frames of each peer, so that they are written together.
#[derive(Default)]
pub(crate) struct Outbox {
    links: Vec<Unflushed>,
}

/// A link with frames that are not flushed yet.
struct Unflushed {
    peer: NodeId,
    link: Arc<Link>,
    frames: usize,
}

impl Outbox {
    /// The only link with unflushed frames.
    pub(crate) fn only_link(&self) -> Option<Arc<Link>> {
        match self.links.as_slice() {
            [only] => Some(Arc::clone(&only.link)),
            _ => None,
        }
    }

    /// Enqueues a protocol frame for a peer, dialling it if necessary. It is written by [`Outbox::flush`] at the latest.
    pub(crate) fn put(&mut self, transport: &Transport, to: NodeId, frame: &Frame) -> Result<(), SendError> {
        // A closed link may have been replaced.
        let is_open = |unflushed: &Unflushed| unflushed.peer == to && !unflushed.link.is_closed();
        let index = self.links.iter().position(is_open).unwrap_or_else(|| {
            let link = transport.link(to);
            self.links.push(Unflushed {
                peer: to,
                link,
                frames: 0,
            });
            self.links.len() - 1
        });
        let unflushed = &mut self.links[index];
        if unflushed.frames >= SENT_FRAMES_MAX {
            unflushed.link.flush(FlushMode::Now);
            unflushed.frames = 0;
        }
        unflushed.frames += 1;
        unflushed.link.put(true, |out| frame::put_protocol(out, frame))
    }

    /// Flushes the frames of all peers.
    pub(crate) fn flush(&mut self, flush_mode: FlushMode) {
        for unflushed in self.links.drain(..) {
            unflushed.link.flush(flush_mode);
        }
    }
}

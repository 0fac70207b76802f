//! One peer's outgoing frames, and the switch that closes its connections.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::SendError;
use crate::frame::{self, Class};

/// What may wait to be written to one peer. A peer that is this far behind is treated as overloaded.
pub const LINK_BYTES_MAX: usize = 64 << 20;

/// A buffer that grew larger than this is not kept for the next batch, so that one large state does not stay in memory.
const KEPT_BYTES_MAX: usize = 1 << 20;

pub(super) struct Link {
    outgoing: Mutex<Outgoing>,
    filled: Notify,
    close: watch::Sender<bool>,
}

#[derive(Default)]
struct Outgoing {
    open: bool,
    bytes: BytesMut,
}

impl Link {
    pub(super) fn new() -> Arc<Link> {
        Arc::new(Link {
            outgoing: Mutex::default(),
            filled: Notify::new(),
            close: watch::Sender::new(false),
        })
    }

    pub(super) fn push(&self, class: Class, payload: &[u8]) -> Result<(), SendError> {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.open && class == Class::Protocol {
            return Ok(());
        }
        if outgoing.bytes.len() + payload.len() > LINK_BYTES_MAX {
            return Err(SendError::Backlogged);
        }
        let was_empty = outgoing.bytes.is_empty();
        frame::put(&mut outgoing.bytes, class, payload).map_err(|_| SendError::TooLarge)?;
        drop(outgoing);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// There is a connection: protocol frames are taken from now on.
    pub(super) fn open(&self) {
        self.outgoing.lock().open = true;
    }

    /// Takes everything that waits to be written, and leaves an empty buffer in its place.
    pub(super) fn take(&self, batch: &mut BytesMut) {
        batch.clear();
        if batch.capacity() > KEPT_BYTES_MAX {
            *batch = BytesMut::new();
        }
        std::mem::swap(batch, &mut self.outgoing.lock().bytes);
    }

    /// Waits until there is something to write.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Closes the peer's connections.
    pub(super) fn close(&self) {
        self.close.send_replace(true);
    }

    /// Waits until the peer's connections are to be closed.
    pub(super) async fn closed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.close.subscribe().wait_for(|closed| *closed).await;
    }
}

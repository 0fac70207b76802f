//! A link: the send queue of one peer, and the signal that closes its connections.
//!
//! A writer task writes all queued frames at once. If the transport allows direct writes, the sending thread writes a frame itself
//! while the connection is quiet, so that a lone call wakes no other thread.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::SendError;
use super::metrics::TransportMetrics;
use crate::frame::FrameError;
use crate::tuning::{DIRECT_WRITE_BYTES_MAX, KEPT_BYTES_MAX, LINK_BYTES_MAX, QUIET_AFTER};

/// Traffic on the connections with a peer since they were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The bytes of frames enqueued for the peer, whether written or not.
    pub sent_bytes: u64,
    /// The bytes of frames received from the peer and handled.
    pub received_bytes: u64,
}

/// The send queue of one peer.
pub(crate) struct Link {
    outgoing: Mutex<Outgoing>,
    /// Notifies the writer task.
    filled: Notify,
    close: watch::Sender<bool>,
    metrics: Arc<TransportMetrics>,
    /// The bytes of frames received and handled.
    received_bytes: AtomicU64,
    /// Set if callers may poll for replies themselves.
    reply_poller: OnceLock<Weak<dyn ReplyPoller>>,
}

/// Lets callers poll for the replies of a peer on their own threads.
pub(super) trait ReplyPoller: Send + Sync {
    /// Polls until `is_done`, for a short time. If `none_pending` then, received bytes wake no task for a while, because the
    /// caller most likely calls again at once.
    fn busy_poll(&self, is_done: &dyn Fn() -> bool, none_pending: &dyn Fn() -> bool);

    /// Makes received bytes wake a task again.
    fn rearm(&self);
}

struct Outgoing {
    /// The wire version of the connection, if there is one.
    version: Option<u16>,
    bytes: Vec<u8>,
    /// The bytes enqueued so far.
    sent_bytes: u64,
    /// The number of frames in `bytes`.
    frames: usize,
    /// Lets the sending thread write, if the connection is not encrypted.
    direct: Option<TcpStream>,
    writer: WriterState,
    /// When frames were last written, or taken by the writer task.
    sent_at: Option<Instant>,
}

/// When enqueued frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushMode {
    /// The sender has no more frames for now: this thread writes them, if the socket accepts them.
    Now,
    /// More frames may follow: unless the connection has been quiet, the writer task writes all queued frames at once.
    Coalesce,
    /// Like `Now`, for a lone caller that busy-polls for its reply: read readiness stays disarmed.
    NowAwaited,
}

/// The state of the writer task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterState {
    /// It waits for a notification.
    Idle,
    /// It has been notified, and is about to take the queued frames.
    Notified,
    /// It is writing: it must write all frames, to keep their order.
    Writing,
}

impl Link {
    pub(super) fn new(metrics: Arc<TransportMetrics>) -> Arc<Link> {
        Arc::new(Link {
            outgoing: Mutex::new(Outgoing {
                version: None,
                bytes: Vec::new(),
                sent_bytes: 0,
                frames: 0,
                direct: None,
                writer: WriterState::Idle,
                sent_at: None,
            }),
            filled: Notify::new(),
            close: watch::Sender::new(false),
            metrics,
            received_bytes: AtomicU64::new(0),
            reply_poller: OnceLock::new(),
        })
    }

    /// Lets callers poll for replies.
    pub(super) fn set_reply_poller(&self, reply_poller: Weak<dyn ReplyPoller>) {
        let is_first = self.reply_poller.set(reply_poller).is_ok();
        assert!(is_first, "a link has one connection for its frames");
    }

    fn reply_poller(&self) -> Option<Arc<dyn ReplyPoller>> {
        self.reply_poller.get()?.upgrade()
    }

    /// Busy-polls for a reply, if the transport supports it: see [`ReplyPoller::busy_poll`].
    pub(crate) fn busy_poll(&self, is_done: &dyn Fn() -> bool, none_pending: &dyn Fn() -> bool) {
        if let Some(reply_poller) = self.reply_poller() {
            reply_poller.busy_poll(is_done, none_pending);
        }
    }

    /// Counts frames that were received and handled.
    pub(super) fn record_received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Release);
    }

    /// Traffic on the link.
    pub(super) fn traffic(&self) -> LinkTraffic {
        LinkTraffic {
            received_bytes: self.received_bytes.load(Ordering::Acquire),
            sent_bytes: self.outgoing.lock().sent_bytes,
        }
    }

    /// Enqueues a frame that `put` appends, for the next [`Link::flush`]. A frame that `needs_connection` is dropped if there is
    /// none.
    pub(crate) fn put(
        &self,
        needs_connection: bool,
        put: impl FnOnce(&mut Vec<u8>) -> Result<(), FrameError>,
    ) -> Result<(), SendError> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.version.is_none() && needs_connection {
            return Ok(());
        }
        let before = outgoing.bytes.len();
        put(&mut outgoing.bytes).map_err(|_| SendError::TooLarge)?;
        if outgoing.bytes.len() > LINK_BYTES_MAX {
            outgoing.bytes.truncate(before);
            self.metrics.backlogged.fetch_add(1, Ordering::Relaxed);
            return Err(SendError::Backlogged);
        }
        outgoing.frames += 1;
        outgoing.sent_bytes += (outgoing.bytes.len() - before) as u64;
        Ok(())
    }

    /// Writes the enqueued frames, or notifies the writer task.
    pub(crate) fn flush(&self, flush_mode: FlushMode) {
        if flush_mode != FlushMode::NowAwaited
            && let Some(reply_poller) = self.reply_poller()
        {
            reply_poller.rearm();
        }
        let mut outgoing = self.outgoing.lock();
        if outgoing.bytes.is_empty()
            || !outgoing.may_be_written(flush_mode)
            || outgoing.write(flush_mode, &self.metrics)
        {
            return;
        }
        if std::mem::replace(&mut outgoing.writer, WriterState::Notified) == WriterState::Idle {
            drop(outgoing);
            self.filled.notify_one();
        }
    }

    /// Sets the wire version of an open connection: frames that need a connection are accepted from now on. With `direct`,
    /// senders write to it while it is quiet.
    pub(super) fn open(&self, version: u16, direct: Option<TcpStream>) {
        let mut outgoing = self.outgoing.lock();
        outgoing.version = Some(version);
        outgoing.direct = direct;
    }

    /// Swaps the queued frames into `batch`, and returns their number. If it is zero, [`Link::filled`] waits for more.
    pub(super) fn take(&self, batch: &mut Vec<u8>) -> usize {
        batch.clear();
        if batch.capacity() > KEPT_BYTES_MAX {
            *batch = Vec::new();
        }
        let mut outgoing = self.outgoing.lock();
        std::mem::swap(batch, &mut outgoing.bytes);
        outgoing.writer = match batch.is_empty() {
            true => WriterState::Idle,
            false => {
                outgoing.sent_at = Some(Instant::now());
                WriterState::Writing
            }
        };
        std::mem::take(&mut outgoing.frames)
    }

    /// The queued bytes, without those that the writer task has taken.
    pub(super) fn queued_bytes(&self) -> usize {
        self.outgoing.lock().bytes.len()
    }

    /// The wire version of the connection, if there is one.
    pub(super) fn version(&self) -> Option<u16> {
        self.outgoing.lock().version
    }

    /// Waits for queued frames.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Whether [`Link::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        *self.close.borrow()
    }

    /// Closes the peer's connections.
    pub(super) fn close(&self) {
        self.outgoing.lock().direct = None;
        self.close.send_replace(true);
    }

    /// Waits for [`Link::close`].
    pub(super) async fn closed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.close.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Outgoing {
    /// Whether the sending thread may write.
    fn may_be_written(&self, flush_mode: FlushMode) -> bool {
        match self.writer {
            WriterState::Idle => true,
            WriterState::Notified => flush_mode != FlushMode::Coalesce,
            WriterState::Writing => false,
        }
    }

    /// Writes on this thread, unless more frames are worth waiting for. Returns whether all frames were written.
    fn write(&mut self, flush_mode: FlushMode, metrics: &TransportMetrics) -> bool {
        let now = Instant::now();
        let sent_at = self.sent_at.replace(now);
        let is_quiet = sent_at.is_none_or(|at| now.duration_since(at) >= QUIET_AFTER);
        let coalesces = !is_quiet && flush_mode == FlushMode::Coalesce;
        if coalesces || self.bytes.len() > DIRECT_WRITE_BYTES_MAX {
            return false;
        }
        let Some(direct) = &mut self.direct else { return false };
        // The writer task meets the same error, and breaks the link.
        let written = direct.write(&self.bytes).unwrap_or(0);
        let time = now.elapsed();
        if written < self.bytes.len() {
            // The frames are counted with the rest of their bytes.
            metrics.sent.record(0, written, time);
            self.bytes.drain(..written);
            return false;
        }
        metrics.sent.record(self.frames, written, time);
        self.bytes.clear();
        self.frames = 0;
        true
    }
}

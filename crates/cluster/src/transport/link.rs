//! One peer's outgoing frames, and the switch that closes its connections.
//!
//! Frames are written by the thread that sends them if the connection has been quiet, so that a lone call wakes nobody on its
//! way out. When there is more to do, they are left to a task that writes all that have gathered at once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::SendError;
use super::metrics::TransportMetrics;
use super::reply_reader::ReplyReader;
use crate::frame::FrameError;
use crate::security::Direct;

/// What may wait to be written to one peer. A peer that is this far behind is treated as overloaded.
pub const LINK_BYTES_MAX: usize = 64 << 20;

/// A buffer that grew larger than this is not kept for the next batch, so that one large state does not stay in memory.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;

/// A connection is quiet if nothing was sent for so long: about what a write costs. If frames come faster than that, it
/// pays to gather them.
const QUIET: Duration = Duration::from_micros(20);

/// So many frames need not wait for more. Whoever sent the last of them writes them, even if the task has been told to: the
/// thread that is about to run it may have lost its core.
const FRAMES_ENOUGH: usize = 32;

/// The sending thread writes no more than this itself: it has other things to do than to copy states.
const OWN_WRITE_BYTES_MAX: usize = 16 << 10;

/// What went over the connections with a peer since they were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The bytes of frames that were put in to be sent, whether they have left or not.
    pub said_bytes: u64,
    /// The bytes of frames that came and were taken in.
    pub heard_bytes: u64,
}

/// One peer's outgoing frames.
pub(super) struct Link {
    outgoing: Mutex<Outgoing>,
    filled: Notify,
    close: watch::Sender<bool>,
    metrics: Arc<TransportMetrics>,
    /// The bytes of frames that came and were taken in.
    heard_bytes: AtomicU64,
    /// What reads the connection that this process has opened.
    replies: Mutex<Weak<ReplyReader>>,
    /// Nobody may be woken by what comes there, because somebody has looked for it.
    may_be_disarmed: AtomicBool,
}

struct Outgoing {
    /// The version that is spoken on the connection, if there is one.
    version: Option<u16>,
    bytes: Vec<u8>,
    /// How many there were of these so far.
    said_bytes: u64,
    /// How many frames are in `bytes`.
    frames: usize,
    /// Lets the sending thread write, if the connection can be written to without more ado.
    direct: Option<Direct>,
    task: Task,
    /// It was told because frames come fast, so there will soon be more.
    batches_calls: bool,
    /// When something was last sent, or taken by the task.
    sent_at: Option<Instant>,
}

/// When what was put leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushMode {
    /// Whoever sends it has nothing more for now: it is written on this thread, if the connection takes it.
    Now,
    /// There may soon be more: if the connection has not been quiet it is left to the task, which writes all that has gathered.
    Coalesce,
    /// It is written on this thread as well, whose caller waits alone and looks for the reply itself: nobody else need receive of that.
    NowAwaited,
}

/// What the task that writes does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// It waits to be told.
    Waits,
    /// It has been told that there is something, and will look.
    Told,
    /// It is at it: everything has to go through it, in order.
    Writes,
}

impl Link {
    pub(super) fn new(metrics: Arc<TransportMetrics>) -> Arc<Link> {
        Arc::new(Link {
            outgoing: Mutex::new(Outgoing {
                version: None,
                bytes: Vec::new(),
                said_bytes: 0,
                frames: 0,
                direct: None,
                task: Task::Waits,
                batches_calls: false,
                sent_at: None,
            }),
            filled: Notify::new(),
            close: watch::Sender::new(false),
            metrics,
            heard_bytes: AtomicU64::new(0),
            replies: Mutex::default(),
            may_be_disarmed: AtomicBool::new(false),
        })
    }

    /// This is what reads the connection, into which callers may look.
    pub(super) fn is_read_by(&self, replies: Weak<ReplyReader>) {
        *self.replies.lock() = replies;
    }

    /// Looks for a moment for a reply, until `is_there`. If `nobody_waits` for another one then, most likely somebody looks again soon.
    pub(super) fn busy_poll(&self, is_there: impl Fn() -> bool, nobody_waits: impl FnOnce() -> bool) {
        let replies = self.replies.lock().upgrade();
        let Some(replies) = replies else { return };
        // Said before it is known who waits: whoever begins to wait after that has seen it.
        self.may_be_disarmed.store(true, Ordering::SeqCst);
        replies.busy_poll(is_there, nobody_waits);
    }

    /// Whether what waits to be written need not be written by the task. Else a task that looks for replies would keep it waiting.
    pub(super) fn is_written_by_senders(&self) -> bool {
        let outgoing = self.outgoing.lock();
        outgoing.direct.is_some() && outgoing.bytes.len() <= OWN_WRITE_BYTES_MAX
    }

    /// Somebody may wait for what comes, and does not look for it.
    fn rearm(&self) {
        if self.may_be_disarmed.load(Ordering::SeqCst) {
            self.may_be_disarmed.store(false, Ordering::SeqCst);
            let replies = self.replies.lock().upgrade();
            if let Some(replies) = replies {
                replies.rearm();
            }
        }
    }

    /// Frames of so many bytes came, and were taken in.
    pub(super) fn heard(&self, bytes: usize) {
        self.heard_bytes.fetch_add(bytes as u64, Ordering::Release);
    }

    /// What went over it.
    pub(super) fn traffic(&self) -> LinkTraffic {
        LinkTraffic {
            heard_bytes: self.heard_bytes.load(Ordering::Acquire),
            said_bytes: self.outgoing.lock().said_bytes,
        }
    }

    /// Takes a frame that `put` appends; it leaves with the next [`Link::flush`]. If it `needs_connection` and there is none, it
    /// is dropped.
    pub(super) fn put(
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
        outgoing.said_bytes += (outgoing.bytes.len() - before) as u64;
        Ok(())
    }

    /// Sends what was put.
    pub(super) fn flush(&self, flush_mode: FlushMode) {
        if flush_mode != FlushMode::NowAwaited {
            self.rearm();
        }
        let mut outgoing = self.outgoing.lock();
        if outgoing.bytes.is_empty()
            || !outgoing.may_be_written(flush_mode)
            || outgoing.write(flush_mode, &self.metrics)
        {
            return;
        }
        if std::mem::replace(&mut outgoing.task, Task::Told) == Task::Waits {
            drop(outgoing);
            self.filled.notify_one();
        }
    }

    /// There is a connection, on which this version is spoken: frames that need one are taken from now on. With `direct` they
    /// are written by whoever sends them while the connection is quiet.
    pub(super) fn open(&self, version: u16, direct: Option<Direct>) {
        let mut outgoing = self.outgoing.lock();
        outgoing.version = Some(version);
        outgoing.direct = direct;
    }

    /// Takes everything that waits to be written, and leaves an empty buffer in its place; how many frames that is. With
    /// none, [`Link::filled`] says when there are some.
    pub(super) fn take(&self, batch: &mut Vec<u8>) -> usize {
        batch.clear();
        if batch.capacity() > KEPT_BYTES_MAX {
            *batch = Vec::new();
        }
        let mut outgoing = self.outgoing.lock();
        std::mem::swap(batch, &mut outgoing.bytes);
        outgoing.task = match batch.is_empty() {
            true => Task::Waits,
            false => {
                outgoing.sent_at = Some(Instant::now());
                Task::Writes
            }
        };
        std::mem::take(&mut outgoing.frames)
    }

    /// How much waits to be written. What the task that writes has taken is on its way.
    pub(super) fn queued_bytes(&self) -> usize {
        self.outgoing.lock().bytes.len()
    }

    /// The version that is spoken on the connection, if there is one.
    pub(super) fn version(&self) -> Option<u16> {
        self.outgoing.lock().version
    }

    /// Waits until there is something to write; whether more is about to come, which should be written along.
    pub(super) async fn filled(&self) -> bool {
        self.filled.notified().await;
        self.outgoing.lock().batches_calls
    }

    /// Whether its connections were closed, or are about to be.
    pub(super) fn is_closed(&self) -> bool {
        *self.close.borrow()
    }

    /// Closes the peer's connections.
    pub(super) fn close(&self) {
        self.outgoing.lock().direct = None;
        self.close.send_replace(true);
    }

    /// Waits until the peer's connections are to be closed.
    pub(super) async fn closed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.close.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Outgoing {
    /// Whether the sending thread need not leave it to the task.
    fn may_be_written(&self, flush_mode: FlushMode) -> bool {
        match self.task {
            Task::Waits => true,
            Task::Told => self.need_not_wait(flush_mode),
            Task::Writes => false,
        }
    }

    /// Whether nothing is gained by waiting for more.
    fn need_not_wait(&self, flush_mode: FlushMode) -> bool {
        flush_mode != FlushMode::Coalesce || self.frames >= FRAMES_ENOUGH
    }

    /// Writes on this thread, if there is no more to wait for and the connection takes it; whether nothing is left.
    fn write(&mut self, flush_mode: FlushMode, metrics: &TransportMetrics) -> bool {
        let now = Instant::now();
        let sent_at = self.sent_at.replace(now);
        let is_quiet = sent_at.is_none_or(|at| now.duration_since(at) >= QUIET);
        self.batches_calls = !is_quiet && !self.need_not_wait(flush_mode);
        if self.batches_calls || self.bytes.len() > OWN_WRITE_BYTES_MAX {
            return false;
        }
        let Some(direct) = &mut self.direct else { return false };
        // If it fails, the task finds out too, and knows what to do.
        let written = direct.write(&self.bytes).unwrap_or(0);
        let time = now.elapsed();
        if written < self.bytes.len() {
            // Its frames are counted when the rest of them is written.
            metrics.sent.passed(0, written, time);
            self.bytes.drain(..written);
            return false;
        }
        metrics.sent.passed(self.frames, written, time);
        self.bytes.clear();
        self.frames = 0;
        true
    }
}

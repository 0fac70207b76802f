//! The inbound half of a connection, and the task that reads it.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use elastin_runtime::{AdaptiveBackoff, InlineTask};
use elastin_types::NodeId;
use tokio::io::AsyncReadExt;
use tokio::task::yield_now;

use super::call_batching::CallBatching;
use super::io_threads::IoThreads;
use super::link::Link;
use super::outgoing_socket::OutgoingSocket;
use super::read_buffer::ReadBuffer;
use super::reply_reader::{ReadHint, ReplyReader};
use super::{ReceiveOutcome, TransportInner};
use crate::frame::{FrameError, Frames, Taken};
use crate::security::{Reader, Writer};

/// The most frames in a batch: enough to amortize its cost, few enough that the last ones do not delay the first.
const FRAME_BATCH_MAX: usize = 128;

/// An inline task that takes longer than this per received frame is slow: waking a worker for it would have cost less than the
/// delay of the frames behind it.
const SLOW_PER_FRAME: Duration = Duration::from_micros(100);

/// The kind of thread that reads a connection.
#[derive(Clone)]
pub(crate) enum ReaderKind {
    /// The I/O threads, which also run turns inline.
    IoThreads(&'static IoThreads),
    /// A tokio task, which a lone caller may busy-poll. It runs no turns inline.
    Tokio(OutgoingSocket, Arc<ReadHint>),
}

impl ReaderKind {
    /// The read hint of a tokio task.
    fn read_hint(&self) -> Option<&ReadHint> {
        match self {
            ReaderKind::IoThreads(_) => None,
            ReaderKind::Tokio(_, read_hint) => Some(read_hint),
        }
    }
}

/// The inbound half of a connection.
pub(super) struct ConnectionReader {
    inner: Arc<TransportInner>,
    kind: ReaderKind,
    peer: NodeId,
    link: Arc<Link>,
    reader: Reader,
    /// An unused outbound half: without it the stream would be half-closed, which the peer takes for a broken connection.
    _writer: Option<Writer>,
    buffer: ReadBuffer,
    backoff: AdaptiveBackoff,
}

impl ConnectionReader {
    pub(super) fn new(
        inner: &Arc<TransportInner>,
        kind: ReaderKind,
        peer: NodeId,
        link: &Arc<Link>,
        reader: Reader,
    ) -> Self {
        Self {
            inner: Arc::clone(inner),
            kind,
            peer,
            link: Arc::clone(link),
            reader,
            _writer: None,
            buffer: ReadBuffer::default(),
            backoff: AdaptiveBackoff::default(),
        }
    }

    /// Keeps the outbound half open as long as this is read.
    pub(super) fn holding(self, writer: Writer) -> Self {
        Self {
            _writer: Some(writer),
            ..self
        }
    }

    /// Spawns the task that reads until the connection breaks or is closed. A penalized peer is read only after a pause.
    pub(super) fn start(self) {
        let (kind, link, handle) = (self.kind.clone(), Arc::clone(&self.link), self.inner.handle.clone());
        let read = async move {
            let pause = self.inner.pause_before_reading(self.peer);
            if !pause.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.link.closed() => return,
                }
            }
            self.run().await;
        };
        match kind {
            ReaderKind::IoThreads(io_threads) => io_threads.spawn(&handle, read),
            ReaderKind::Tokio(socket, read_hint) => {
                link.set_reply_reader(ReplyReader::spawn(&handle, socket, read_hint, read))
            }
        }
    }

    /// Reads until the connection breaks or is closed, or until another task takes it over.
    async fn run(self) {
        let (inner, peer, link) = (Arc::clone(&self.inner), self.peer, Arc::clone(&self.link));
        tokio::select! {
            biased;
            end = self.read() => match end {
                ReadEnd::Broken => inner.break_link(peer, &link),
                ReadEnd::HandedOver => {}
            },
            () = link.closed() => {}
        }
    }

    async fn read(mut self) -> ReadEnd {
        let peer = self.peer;
        let mut call_batching = None;
        loop {
            let batching_task = match self.kind {
                ReaderKind::Tokio(..) => Some(poll_fn(|context| Poll::Ready(context.waker().clone())).await),
                ReaderKind::IoThreads(_) => None,
            };
            let (frames, inline_task) = match self.receive(batching_task.as_ref(), &mut call_batching) {
                Ok(received) => received,
                Err(error) => {
                    tracing::warn!(%peer, %error, "dropped a connection");
                    self.inner.penalize(peer);
                    return ReadEnd::Broken;
                }
            };
            if let Some(inline_task) = inline_task {
                match self.run_inline_task(inline_task, frames) {
                    Some(reader) => self = reader,
                    None => return ReadEnd::HandedOver,
                }
            }
            if frames == FRAME_BATCH_MAX {
                // Lets the tasks of other connections run.
                yield_and_flush(&mut call_batching).await;
                continue;
            }
            match self.read_more(&mut call_batching).await {
                Ok(0) => return ReadEnd::Broken,
                Ok(read) => {
                    self.buffer.filled(read);
                    if self.buffer.is_full() {
                        yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "a connection broke");
                    return ReadEnd::Broken;
                }
            }
        }
    }

    /// Reads the next bytes, and flushes batched calls until they arrive.
    async fn read_more(&mut self, call_batching: &mut Option<CallBatching>) -> io::Result<usize> {
        while call_batching.is_some() {
            yield_and_flush(call_batching).await;
            let mut read = pin!(self.reader.read(self.buffer.room()));
            if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
                return read;
            }
        }
        if let Some(read_hint) = self.kind.read_hint() {
            read_hint.callers_have_sent(self.link.is_written_by_senders());
        }
        self.reader.read(self.buffer.room()).await
    }

    /// Passes the buffered frames to the receiver. Returns their number, and a turn that this thread may run. Begins to batch
    /// calls if the receiver asks for it.
    fn receive(
        &mut self,
        batching_task: Option<&Waker>,
        call_batching: &mut Option<CallBatching>,
    ) -> Result<(usize, Option<InlineTask>), FrameError> {
        if self.buffer.unread().is_empty() {
            return Ok((0, None));
        }
        let began = Instant::now();
        let mut frames = Frames::new(self.buffer.unread(), FRAME_BATCH_MAX);
        let read_hint = self.kind.read_hint();
        let inline_task = match self.inner.receiver.frames(self.peer, &mut frames, batching_task) {
            Some(ReceiveOutcome::InlineTask(inline_task)) => Some(inline_task),
            Some(ReceiveOutcome::Outcome) => {
                read_hint.inspect(|read_hint| read_hint.set(ReadHint::ARM));
                None
            }
            Some(ReceiveOutcome::Calls) => {
                read_hint.inspect(|read_hint| read_hint.set(ReadHint::CALLERS_RUN));
                let batching = CallBatching::begin_or_continue(call_batching.take(), &self.inner.receiver);
                *call_batching = Some(batching);
                None
            }
            None => None,
        };
        let Taken { frames, bytes } = frames.end()?;
        if frames > 0 {
            self.inner.metrics.received.record(frames, bytes, began.elapsed());
            self.link.record_received(bytes);
        }
        self.buffer.consume(bytes);
        Ok((frames, inline_task))
    }

    /// Runs an inline task on this thread, or leaves it to the workers. Returns the connection, unless another task has taken it
    /// over because the inline task took too long.
    fn run_inline_task(mut self, inline_task: InlineTask, frames: usize) -> Option<Self> {
        let ReaderKind::IoThreads(io_threads) = self.kind else {
            return Some(self);
        };
        // An inline task must not delay connections that are known to be ready.
        if io_threads.has_ready() || self.backoff.should_skip() {
            return Some(self);
        }
        let inner = Arc::clone(&self.inner);
        let token = match io_threads.offer_connection(self) {
            Ok(token) => token,
            Err(reader) => return Some(reader),
        };
        let began = Instant::now();
        inner.receiver.run(inline_task);
        let mut reader = io_threads.reclaim_connection(token)?;
        match began.elapsed() > SLOW_PER_FRAME * frames as u32 {
            true => reader.backoff.failure(),
            false => reader.backoff.success(),
        }
        Some(reader)
    }
}

/// Yields to other tasks, and flushes batched calls.
async fn yield_and_flush(call_batching: &mut Option<CallBatching>) {
    match call_batching.take() {
        Some(batching) => *call_batching = batching.yield_and_flush().await,
        None => yield_now().await,
    }
}

/// The reason why a task stopped reading a connection.
enum ReadEnd {
    Broken,
    HandedOver,
}

/// Takes over a connection whose reader is blocked by its inline task.
pub(super) fn take_over(io_threads: &'static IoThreads, mut reader: ConnectionReader) {
    let handle = reader.inner.handle.clone();
    io_threads.spawn(&handle, async move {
        reader.inner.receiver.catch_up();
        reader.backoff.severe_failure();
        reader.run().await;
    });
}

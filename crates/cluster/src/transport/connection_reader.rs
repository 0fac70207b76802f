//! The receiving end of a connection, and the task that reads it.

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
use super::{Inner, ReceiveOutcome};
use crate::frame::{FrameError, Frames, Taken};
use crate::security::{Reader, Writer};

/// How many frames are taken in together: enough that it pays, few enough that the first ones are not held up by the last.
const FRAMES_AT_ONCE: usize = 128;

/// An inline task that takes longer than this for each frame that it was brought by is slow: waking a worker for it would have cost
/// less than the wait of what comes behind it.
const SLOW_PER_FRAME: Duration = Duration::from_micros(100);

/// Who reads a connection.
#[derive(Clone)]
pub(crate) enum ReaderKind {
    /// Threads of our own, which also run actors.
    IoThreads(&'static IoThreads),
    /// A task of tokio's, or whoever waits for a reply alone. They run no errands.
    PendingCalls(OutgoingSocket, Arc<ReadHint>),
}

impl ReaderKind {
    /// What the task says of what it has to expect, if others want to know.
    fn read_hint(&self) -> Option<&ReadHint> {
        match self {
            ReaderKind::IoThreads(_) => None,
            ReaderKind::PendingCalls(_, read_hint) => Some(read_hint),
        }
    }
}

/// The receiving end of a connection.
pub(super) struct ConnectionReader {
    inner: Arc<Inner>,
    read_by: ReaderKind,
    peer: NodeId,
    link: Arc<Link>,
    reader: Reader,
    /// A sending end that is not used: a half-closed stream would look broken to the peer.
    _writer: Option<Writer>,
    input: ReadBuffer,
    backoff: AdaptiveBackoff,
}

impl ConnectionReader {
    pub(super) fn new(inner: &Arc<Inner>, read_by: ReaderKind, peer: NodeId, link: &Arc<Link>, reader: Reader) -> Self {
        Self {
            inner: Arc::clone(inner),
            read_by,
            peer,
            link: Arc::clone(link),
            reader,
            _writer: None,
            input: ReadBuffer::default(),
            backoff: AdaptiveBackoff::default(),
        }
    }

    /// Keeps the sending end open as long as this is read.
    pub(super) fn keeping(self, writer: Writer) -> Self {
        Self {
            _writer: Some(writer),
            ..self
        }
    }

    /// Has it read until the connection breaks or is closed; if the peer has talked nonsense, only after a pause.
    pub(super) fn start(self) {
        let (read_by, link, handle) = (self.read_by.clone(), Arc::clone(&self.link), self.inner.handle.clone());
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
        match read_by {
            ReaderKind::IoThreads(io_threads) => io_threads.spawn(&handle, read),
            ReaderKind::PendingCalls(socket, read_hint) => {
                link.is_read_by(ReplyReader::spawn(&handle, socket, read_hint, read))
            }
        }
    }

    /// Reads until the connection breaks or is closed, or until another task reads on.
    async fn run(self) {
        let (inner, peer, link) = (Arc::clone(&self.inner), self.peer, Arc::clone(&self.link));
        tokio::select! {
            biased;
            end = self.read() => match end {
                End::Broken => inner.break_link(peer, &link),
                End::HandedOver => {}
            },
            () = link.closed() => {}
        }
    }

    async fn read(mut self) -> End {
        let peer = self.peer;
        let mut call_batching = None;
        loop {
            let comes_again = match self.read_by {
                ReaderKind::PendingCalls(..) => Some(poll_fn(|context| Poll::Ready(context.waker().clone())).await),
                ReaderKind::IoThreads(_) => None,
            };
            let (frames, inline_task) = match self.receive(comes_again.as_ref(), &mut call_batching) {
                Ok(heard) => heard,
                Err(error) => {
                    tracing::warn!(%peer, %error, "dropped a connection");
                    self.inner.peer_penalty(peer);
                    return End::Broken;
                }
            };
            if let Some(inline_task) = inline_task {
                match self.run_inline_task(inline_task, frames) {
                    Some(reading) => self = reading,
                    None => return End::HandedOver,
                }
            }
            if frames == FRAMES_AT_ONCE {
                // Other connections get their turn.
                give_way(&mut call_batching).await;
                continue;
            }
            match self.read_more(&mut call_batching).await {
                Ok(0) => return End::Broken,
                Ok(read) => {
                    self.input.filled(read);
                    if self.input.is_full() {
                        yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "a connection broke");
                    return End::Broken;
                }
            }
        }
    }

    /// Reads what comes next. Until it is there, what callers leave is sent.
    async fn read_more(&mut self, call_batching: &mut Option<CallBatching>) -> io::Result<usize> {
        while call_batching.is_some() {
            give_way(call_batching).await;
            let mut read = pin!(self.reader.read(self.input.room()));
            if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
                return read;
            }
        }
        if let Some(read_hint) = self.read_by.read_hint() {
            read_hint.callers_have_sent(self.link.is_written_by_senders());
        }
        self.reader.read(self.input.room()).await
    }

    /// CommandExecutor on what has come so far; how many frames that is, and what this thread may run of what came of it. If callers are to
    /// leave what they send to a task that `comes_again`, they do.
    fn receive(
        &mut self,
        comes_again: Option<&Waker>,
        call_batching: &mut Option<CallBatching>,
    ) -> Result<(usize, Option<InlineTask>), FrameError> {
        if self.input.unread().is_empty() {
            return Ok((0, None));
        }
        let began = Instant::now();
        let mut frames = Frames::new(self.input.unread(), FRAMES_AT_ONCE);
        let read_hint = self.read_by.read_hint();
        let inline_task = match self.inner.receiver.frames(self.peer, &mut frames, comes_again) {
            Some(ReceiveOutcome::InlineTask(inline_task)) => Some(inline_task),
            Some(ReceiveOutcome::Outcome) => {
                read_hint.inspect(|read_hint| read_hint.set(ReadHint::READINESS));
                None
            }
            Some(ReceiveOutcome::Calls) => {
                read_hint.inspect(|read_hint| read_hint.set(ReadHint::CALLERS));
                *call_batching = Some(CallBatching::goes_on(call_batching.take(), &self.inner.receiver));
                None
            }
            None => None,
        };
        let Taken { frames, bytes } = frames.end()?;
        if frames > 0 {
            self.inner.metrics.received.passed(frames, bytes, began.elapsed());
            self.link.heard(bytes);
        }
        self.input.pass(bytes);
        Ok((frames, inline_task))
    }

    /// Runs an inline task on this thread, or leaves it to the workers. Gives back the connection, unless another task has taken
    /// it over because this took too long.
    fn run_inline_task(mut self, inline_task: InlineTask, frames: usize) -> Option<Self> {
        let ReaderKind::IoThreads(io_threads) = self.read_by else {
            return Some(self);
        };
        // Other connections do not wait for it, as far as is known.
        if io_threads.has_ready() || self.backoff.should_skip() {
            return Some(self);
        }
        let inner = Arc::clone(&self.inner);
        let ticket = match io_threads.put_down(self) {
            Ok(ticket) => ticket,
            Err(reading) => return Some(reading),
        };
        let began = Instant::now();
        inner.receiver.run(inline_task);
        let mut reading = io_threads.take_back(ticket)?;
        match began.elapsed() > SLOW_PER_FRAME * frames as u32 {
            true => reading.backoff.failure(),
            false => reading.backoff.success(),
        }
        Some(reading)
    }
}

/// Lets others run, and sends what callers leave.
async fn give_way(call_batching: &mut Option<CallBatching>) {
    match call_batching.take() {
        Some(begun) => *call_batching = begun.give_way_and_send().await,
        None => yield_now().await,
    }
}

/// Why a task does not read a connection any longer.
enum End {
    Broken,
    HandedOver,
}

/// Goes on reading a connection whose reader is held up by what it runs.
pub(super) fn read_on(io_threads: &'static IoThreads, mut reading: ConnectionReader) {
    let handle = reading.inner.handle.clone();
    io_threads.spawn(&handle, async move {
        reading.inner.receiver.catch_up();
        reading.backoff.severe_failure();
        reading.run().await;
    });
}

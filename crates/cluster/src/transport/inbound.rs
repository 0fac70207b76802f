//! The inbound half of a connection, without the choice of the task that reads it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use elastin_types::NodeId;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::yield_now;

use super::link::Link;
use super::read_buffer::ReadBuffer;
use super::{FollowUp, TransportInner};
use crate::frame::{Frames, Taken};
use crate::security::{Reader, Writer};
use crate::tuning::RECEIVED_FRAMES_MAX;

/// The inbound half of a connection: parses received bytes, and passes frames to the receiver.
pub(super) struct Inbound {
    pub(super) connection: Connection,
    reader: Reader,
    /// An unused outbound half: without it the stream would be half-closed, which the peer takes for a broken connection.
    _writer: Option<Writer>,
    buffer: ReadBuffer,
}

/// The context in which a connection is read.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) inner: Arc<TransportInner>,
    peer: NodeId,
    pub(super) link: Arc<Link>,
}

/// A batch of frames that the receiver has handled.
#[derive(Default)]
pub(super) struct Received {
    /// Their number.
    pub(super) frames: usize,
    pub(super) follow_up: Option<FollowUp>,
}

impl Received {
    /// Whether further frames may be buffered.
    pub(super) fn is_full(&self) -> bool {
        self.frames == RECEIVED_FRAMES_MAX
    }
}

/// The connection broke.
pub(super) struct Broken;

impl Connection {
    /// Reads with `read` until the connection breaks or is closed, or until `read` leaves it to another task. A penalized peer is
    /// read only after a pause.
    pub(super) async fn run(self, read: impl Future<Output = Result<(), Broken>>) {
        let Self { inner, peer, link } = self;
        let reading = async {
            let pause = inner.pause_before_reading(peer);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            read.await
        };
        tokio::select! {
            biased;
            read = reading => if read.is_err() {
                inner.break_link(peer, &link);
            },
            () = link.closed() => {}
        }
    }
}

impl Inbound {
    pub(super) fn new(
        inner: &Arc<TransportInner>,
        peer: NodeId,
        link: &Arc<Link>,
        reader: Reader,
        unused_writer: Option<Writer>,
    ) -> Self {
        Self {
            connection: Connection {
                inner: Arc::clone(inner),
                peer,
                link: Arc::clone(link),
            },
            reader,
            _writer: unused_writer,
            buffer: ReadBuffer::default(),
        }
    }

    /// Passes the buffered frames to the receiver. `task` is the waker of a task that can take [steps](FollowUp::Steps).
    pub(super) fn receive(&mut self, task: Option<&Waker>) -> Result<Received, Broken> {
        if self.buffer.unread().is_empty() {
            return Ok(Received::default());
        }
        let Connection { inner, peer, link } = &self.connection;
        let began = Instant::now();
        let mut frames = Frames::new(self.buffer.unread(), RECEIVED_FRAMES_MAX);
        let follow_up = inner.receiver.frames(*peer, &mut frames, task);
        let Taken { frames, bytes } = frames.end().map_err(|error| {
            tracing::warn!(%peer, %error, "dropped a connection");
            inner.penalize(*peer);
            Broken
        })?;
        if frames > 0 {
            inner.metrics.received.record(frames, bytes, began.elapsed());
            link.record_received(bytes);
        }
        self.buffer.consume(bytes);
        Ok(Received { frames, follow_up })
    }

    /// Reads more bytes after a batch, unless the buffer may hold further frames. Yields to the tasks of other connections after a full read.
    pub(super) async fn read_after(&mut self, frames: usize) -> Result<(), Broken> {
        if frames == RECEIVED_FRAMES_MAX || poll_fn(|context| self.poll_read(context)).await? {
            yield_now().await;
        }
        Ok(())
    }

    /// Reads the available bytes. Returns whether they fill the buffer, so that more may be available.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Broken>> {
        let mut room = ReadBuf::new(self.buffer.room());
        let read = ready!(Pin::new(&mut self.reader).poll_read(context, &mut room));
        let bytes = room.filled().len();
        Poll::Ready(match read {
            Ok(()) if bytes == 0 => Err(Broken),
            Ok(()) => {
                self.buffer.filled(bytes);
                Ok(self.buffer.is_full())
            }
            Err(error) => {
                tracing::debug!(peer = %self.connection.peer, %error, "a connection broke");
                Err(Broken)
            }
        })
    }
}

//! The socket of an accepted connection, whose readiness the I/O threads report.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use mio::Token;
use mio::event::Event;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io_threads::IoThreads;

/// A shared handle of the socket, which is closed with the last clone. One task reads and one writes.
#[derive(Clone)]
pub(super) struct AcceptedSocket {
    inner: Arc<AcceptedInner>,
}

struct AcceptedInner {
    stream: mio::net::TcpStream,
    io_threads: &'static IoThreads,
    token: Token,
    readiness: Arc<Readiness>,
}

/// The readiness of a socket, and the wakers of its reader and writer.
///
/// The system reports each change once (edge-triggered). So `readable` is set before the reader is woken, and cleared before it
/// reads.
#[derive(Default)]
pub(super) struct Readiness {
    readable: AtomicBool,
    /// The stream has ended or failed, so that a read never blocks.
    ended: AtomicBool,
    reader: WakerSlot,
    writer: WakerSlot,
}

/// The waker of a waiting task.
#[derive(Default)]
struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    fn set(&self, waker: &Waker) {
        let mut slot = self.0.lock();
        match &mut *slot {
            Some(same) if same.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        let waker = self.0.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Readiness {
    /// Records an event of the system, and wakes the tasks that wait for it.
    pub(super) fn record(&self, event: &Event) {
        let ended = event.is_read_closed() || event.is_error();
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        if ended || event.is_readable() {
            self.readable.store(true, Ordering::Release);
            self.reader.wake();
        }
        if event.is_writable() || event.is_write_closed() || event.is_error() {
            self.writer.wake();
        }
    }

    /// Takes the read readiness.
    fn take_readable(&self) -> bool {
        self.readable.swap(false, Ordering::AcqRel) || self.ended.load(Ordering::Acquire)
    }

    /// Waits for read readiness, and takes it.
    fn poll_readable(&self, context: &Context<'_>) -> Poll<()> {
        if self.take_readable() {
            return Poll::Ready(());
        }
        self.reader.set(context.waker());
        // The event may have been recorded before the waker was set.
        match self.take_readable() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl AcceptedSocket {
    /// Wraps an open connection in non-blocking mode.
    pub(super) fn new(stream: std::net::TcpStream, io_threads: &'static IoThreads) -> io::Result<Self> {
        let mut stream = mio::net::TcpStream::from_std(stream);
        let readiness = Arc::new(Readiness::default());
        let token = io_threads.register(&mut stream, &readiness)?;
        let inner = AcceptedInner {
            stream,
            io_threads,
            token,
            readiness,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes, or waits for write readiness.
    fn poll_write_with(
        &self,
        context: &Context<'_>,
        mut write: impl FnMut(&mut &mio::net::TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut attempt = || loop {
            match write(&mut &self.inner.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                done => return Poll::Ready(done),
            }
        };
        if let Poll::Ready(done) = attempt() {
            return Poll::Ready(done);
        }
        self.inner.readiness.writer.set(context.waker());
        // The socket may have become writable before the waker was set.
        attempt()
    }
}

impl Drop for AcceptedInner {
    fn drop(&mut self) {
        self.io_threads.deregister(&mut self.stream, self.token);
    }
}

impl AsyncRead for AcceptedSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let AcceptedInner { stream, readiness, .. } = &*self.inner;
        loop {
            ready!(readiness.poll_readable(context));
            let room = buffer.initialize_unfilled();
            match (&mut &*stream).read(room) {
                Ok(read) => {
                    if read == room.len() {
                        // There may be more bytes, which the system does not report again.
                        readiness.readable.store(true, Ordering::Release);
                    }
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    readiness.readable.store(true, Ordering::Release);
                }
                // The reported bytes had already been read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    readiness.ended.store(false, Ordering::Release);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for AcceptedSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written bytes are in the kernel's buffer: there is nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.inner.stream.shutdown(Shutdown::Write))
    }
}

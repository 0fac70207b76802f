//! The socket of a connection that this process has opened.
//!
//! Tokio reports when it is readable, except while a caller busy-polls it: received bytes must not wake another thread then. A
//! caller that has found its reply most likely calls again at once. So the socket stays disarmed for a short time afterwards:
//! received bytes wake no task.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::tuning::DISARMED_MAX;

/// A shared handle of the socket. One task reads and one writes.
#[derive(Clone)]
pub(super) struct DialledSocket {
    ends: Arc<Ends>,
}

/// Each direction is registered with tokio separately: otherwise a waiting writer would be woken by received bytes, too.
struct Ends {
    reading: Arc<TcpStream>,
    readiness: Mutex<Readiness>,
    /// A duplicate descriptor, because tokio registers each only once.
    writing: AsyncFd<TcpStream>,
}

/// How the reader learns of received bytes.
#[derive(Default)]
enum Readiness {
    /// The next read registers it with tokio.
    #[default]
    Unregistered,
    /// Received bytes wake the reader.
    Armed(AsyncFd<Arc<TcpStream>>),
    /// Received bytes wake the reader only after the timeout.
    Disarmed(Timeout),
    /// A thread polls the reader, which needs no wake. A timeout that runs is kept.
    BusyPolled(Option<Timeout>),
}

type Timeout = Pin<Box<Sleep>>;

/// Registers a socket with tokio.
#[expect(
    deprecated,
    reason = "the replacement is unsafe, because types other than sockets might change their descriptor"
)]
fn register<S: std::os::fd::AsRawFd>(socket: S, interest: Interest) -> io::Result<AsyncFd<S>> {
    AsyncFd::with_interest(socket, interest)
}

impl DialledSocket {
    /// Wraps an open connection.
    pub(super) fn new(stream: tokio::net::TcpStream) -> io::Result<Self> {
        let stream = stream.into_std()?;
        let ends = Ends {
            writing: register(stream.try_clone()?, Interest::WRITABLE)?,
            reading: Arc::new(stream),
            readiness: Mutex::default(),
        };
        Ok(Self { ends: Arc::new(ends) })
    }

    /// A duplicate for senders, which write without blocking.
    pub(super) fn direct(&self) -> io::Result<TcpStream> {
        self.ends.reading.try_clone()
    }

    /// Begins a busy-poll: received bytes wake no task until it ends. Only the thread that holds the reader may call this.
    pub(super) fn begin_busy_poll(&self) {
        let mut readiness = self.ends.readiness.lock();
        let timeout = match std::mem::take(&mut *readiness) {
            Readiness::Disarmed(timeout) => Some(timeout),
            _ => None,
        };
        *readiness = Readiness::BusyPolled(timeout);
    }

    /// Ends a busy-poll. If the socket `stays_disarmed`, received bytes wake the reader only after [`DISARMED_MAX`]. Returns
    /// whether the reader must be polled to register its waker.
    pub(super) fn end_busy_poll(&self, stays_disarmed: bool) -> bool {
        let mut readiness = self.ends.readiness.lock();
        let ended = std::mem::take(&mut *readiness);
        if !stays_disarmed {
            return true;
        }
        let (timeout, is_new) = match ended {
            Readiness::BusyPolled(Some(timeout)) => (timeout, false),
            _ => (Box::pin(sleep(DISARMED_MAX)), true),
        };
        *readiness = Readiness::Disarmed(timeout);
        is_new
    }

    /// Whether it is disarmed.
    #[cfg(test)]
    pub(super) fn is_disarmed(&self) -> bool {
        matches!(*self.ends.readiness.lock(), Readiness::Disarmed(_))
    }

    /// Rearms it: received bytes wake the reader after its next poll. Returns whether it was disarmed.
    pub(super) fn rearm(&self) -> bool {
        let mut readiness = self.ends.readiness.lock();
        let is_disarmed = matches!(*readiness, Readiness::Disarmed(_));
        if is_disarmed {
            *readiness = Readiness::Unregistered;
        }
        is_disarmed
    }
}

impl Ends {
    /// Reads the available bytes. Returns whether the socket is drained.
    fn read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let room = buffer.initialize_unfilled();
        let capacity = room.len();
        let read = loop {
            match (&*self.reading).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        buffer.advance(read);
        Ok(0 < read && read < capacity)
    }
}

fn is_empty<T>(read: &io::Result<T>) -> bool {
    read.as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for DialledSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let ends = &*self.ends;
        let mut readiness = ends.readiness.lock();
        loop {
            match &mut *readiness {
                Readiness::Unregistered => {
                    *readiness = Readiness::Armed(register(Arc::clone(&ends.reading), Interest::READABLE)?);
                }
                Readiness::Disarmed(timeout) => {
                    ready!(timeout.as_mut().poll(context));
                    *readiness = Readiness::Unregistered;
                }
                Readiness::BusyPolled(_) => {
                    let read = ends.read(buffer);
                    return match is_empty(&read) {
                        true => Poll::Pending,
                        false => Poll::Ready(read.map(drop)),
                    };
                }
                Readiness::Armed(registered) => {
                    let mut ready = ready!(registered.poll_read_ready(context))?;
                    let read = ends.read(buffer);
                    let (is_empty, is_drained) = (is_empty(&read), matches!(read, Ok(true)));
                    if is_empty || is_drained {
                        // Further bytes set readiness again.
                        ready.clear_ready();
                    }
                    if !is_empty {
                        return Poll::Ready(read.map(drop));
                    }
                }
            }
        }
    }
}

impl AsyncWrite for DialledSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.ends.writing.poll_write_ready(context))?;
            if let Ok(done) = ready.try_io(|end| end.get_ref().write(bytes)) {
                return Poll::Ready(done);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written bytes are in the kernel's buffer: there is nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.ends.reading.shutdown(Shutdown::Write))
    }
}

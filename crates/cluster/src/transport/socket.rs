//! A connection's socket, of which the threads that read connections say when it can be read and written.

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

/// A socket. Its clones are the same one, which is closed with the last of them; one task reads and one writes.
#[derive(Clone)]
pub(crate) struct Socket {
    inner: Arc<Inner>,
}

struct Inner {
    stream: mio::net::TcpStream,
    io_threads: &'static IoThreads,
    token: Token,
    readiness: Arc<Readiness>,
}

/// Whether a socket can be read and written, and who waits for it.
///
/// The system tells of a change once. So it is noted that there may be something to read before whoever reads is woken, and
/// forgotten before it reads.
#[derive(Default)]
pub(super) struct Readiness {
    readable: AtomicBool,
    /// Nothing more will come, so there is always something to be read: the end.
    ends: AtomicBool,
    reader: Waiting,
    writer: Waiting,
}

/// Who waits.
#[derive(Default)]
struct Waiting(Mutex<Option<Waker>>);

impl Waiting {
    fn set(&self, waker: &Waker) {
        let mut waiting = self.0.lock();
        match &mut *waiting {
            Some(same) if same.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        let waiting = self.0.lock().clone();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Readiness {
    /// Something has happened at the socket.
    pub(super) fn tell(&self, event: &Event) {
        let ends = event.is_read_closed() || event.is_error();
        if ends {
            self.ends.store(true, Ordering::Release);
        }
        if ends || event.is_readable() {
            self.readable.store(true, Ordering::Release);
            self.reader.wake();
        }
        if event.is_writable() || event.is_write_closed() || event.is_error() {
            self.writer.wake();
        }
    }

    /// Whether there may be something to read. If there is, that is forgotten.
    fn take_readable(&self) -> bool {
        self.readable.swap(false, Ordering::AcqRel) || self.ends.load(Ordering::Acquire)
    }

    /// Waits until there may be something to read.
    fn poll_readable(&self, context: &Context<'_>) -> Poll<()> {
        if self.take_readable() {
            return Poll::Ready(());
        }
        self.reader.set(context.waker());
        // It may have happened before anybody could be woken.
        match self.take_readable() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Socket {
    /// A connection that is open and does not block.
    pub(crate) fn new(stream: std::net::TcpStream) -> io::Result<Self> {
        let io_threads = IoThreads::of_process()?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let readiness = Arc::new(Readiness::default());
        let token = io_threads.register(&mut stream, &readiness)?;
        let inner = Inner {
            stream,
            io_threads,
            token,
            readiness,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The threads that it is known to.
    pub(crate) fn io_threads(&self) -> &'static IoThreads {
        self.inner.io_threads
    }

    /// Writes, or waits until it can.
    fn poll_writing(
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
        // It may have become possible before anybody could be woken.
        attempt()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.io_threads.deregister(&mut self.stream, self.token);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Inner { stream, readiness, .. } = &*self.inner;
        loop {
            ready!(readiness.poll_readable(context));
            let room = buffer.initialize_unfilled();
            match (&mut &*stream).read(room) {
                Ok(read) => {
                    if read == room.len() {
                        // There may be more, of which nobody would tell.
                        readiness.readable.store(true, Ordering::Release);
                    }
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    readiness.readable.store(true, Ordering::Release);
                }
                // What was told of had been read already.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    readiness.ends.store(false, Ordering::Release);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written is the system's.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.inner.stream.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    /// More than the system keeps of a connection that nobody reads.
    const MUCH: usize = 32 << 20;

    /// A socket of ours, and the other end.
    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (Socket::new(stream.into_std().unwrap()).unwrap(), other)
    }

    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(20), future)
            .await
            .expect("it does not get stuck")
    }

    fn bytes() -> Vec<u8> {
        (0..MUCH).map(|at| (at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn more_than_fits_waits_until_it_is_read() {
        let (mut ours, mut other) = pair().await;
        let writes = tokio::spawn(async move { ours.write_all(&bytes()).await });
        // The writer gets stuck before anybody reads.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!writes.is_finished());
        let mut came = vec![0; MUCH];
        in_time(other.read_exact(&mut came)).await.unwrap();
        assert!(came == bytes());
        in_time(writes).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn everything_is_read_and_then_the_end() {
        for piece in [1_000, 64 << 10] {
            let (mut ours, mut other) = pair().await;
            let writes = tokio::spawn(async move {
                other.write_all(&bytes()).await.unwrap();
            });
            let (mut came, mut room) = (Vec::new(), vec![0; piece]);
            loop {
                match in_time(ours.read(&mut room)).await.unwrap() {
                    0 => break,
                    read => came.extend_from_slice(&room[..read]),
                }
            }
            assert!(came == bytes());
            writes.await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_reads_hears_of_a_connection_that_breaks() {
        let (mut ours, other) = pair().await;
        let reads = tokio::spawn(async move { ours.read(&mut [0]).await });
        other.set_zero_linger().unwrap();
        drop(other);
        assert!(in_time(reads).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn the_last_clone_closes_it() {
        let (ours, mut other) = pair().await;
        let clone = ours.clone();
        drop(ours);
        let reads = tokio::spawn(async move { other.read(&mut [0]).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!reads.is_finished());
        drop(clone);
        assert_eq!(in_time(reads).await.unwrap().unwrap(), 0);
    }
}

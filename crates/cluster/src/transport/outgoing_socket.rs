//! The socket of a connection that this process has opened.
//!
//! Tokio says when it can be read, except while a caller looks for its reply itself: what comes then wakes nobody else. Who has found
//! its reply most likely calls again at once, so for a moment after that the socket stays disarmed: nobody is told of what comes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long it stays disarmed if nobody looks any more. What nobody waits for may come so much later; and whoever is woken when this is
/// over gets in the way of those who still look.
const DISARMED_MAX: Duration = Duration::from_millis(10);

/// A socket. Its clones are the same one; one task reads and one writes.
#[derive(Clone)]
pub(crate) struct OutgoingSocket {
    ends: Arc<Ends>,
}

/// Tokio is asked for each direction by itself: whoever waits until something can be written would be told of what comes, too.
struct Ends {
    reading: Arc<TcpStream>,
    /// How whoever reads hears of what comes.
    hearing: Mutex<Armed>,
    /// Whoever reads comes again by itself.
    is_looked_at: AtomicBool,
    /// Another descriptor, because tokio takes each only once.
    writing: AsyncFd<TcpStream>,
}

#[derive(Default)]
struct Armed {
    /// Says when it can be read; none while somebody looks, while it is disarmed, and until somebody reads.
    readable: Option<AsyncFd<Arc<TcpStream>>>,
    /// It is disarmed until this is over.
    disarmed: Option<Pin<Box<Sleep>>>,
    /// Somebody has looked since then: it stays disarmed for as long again.
    has_looked: bool,
}

impl Armed {
    /// Waits until it is disarmed no more.
    fn poll_disarmed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(disarmed) = &mut self.disarmed {
            ready!(disarmed.as_mut().poll(context));
            match std::mem::take(&mut self.has_looked) {
                true => disarmed.as_mut().reset(Instant::now() + DISARMED_MAX),
                false => self.disarmed = None,
            }
        }
        Poll::Ready(())
    }
}

/// Lets tokio tell of a socket.
#[expect(
    deprecated,
    reason = "what comes after it is unsafe, because others than a socket might change their descriptor"
)]
fn told<S: std::os::fd::AsRawFd>(socket: S, interest: Interest) -> io::Result<AsyncFd<S>> {
    AsyncFd::with_interest(socket, interest)
}

impl OutgoingSocket {
    /// A connection that is open.
    pub(crate) fn new(stream: tokio::net::TcpStream) -> io::Result<Self> {
        let stream = stream.into_std()?;
        let ends = Ends {
            writing: told(stream.try_clone()?, Interest::WRITABLE)?,
            reading: Arc::new(stream),
            hearing: Mutex::default(),
            is_looked_at: AtomicBool::new(false),
        };
        Ok(Self { ends: Arc::new(ends) })
    }

    /// The same connection, for those who write without waiting.
    pub(crate) fn direct(&self) -> io::Result<TcpStream> {
        self.ends.reading.try_clone()
    }

    /// From now on whoever reads comes again by itself, and nobody is woken by what comes. Only for whoever has the reader.
    pub(super) fn begin_busy_poll(&self) {
        self.ends.is_looked_at.store(true, Ordering::Relaxed);
        self.ends.hearing.lock().readable = None;
    }

    /// From now on whoever reads does not come by itself. If it `stays_disarmed` that one is woken by what comes only after a moment in
    /// which nobody has looked. Whether it has to ask to read, so that it is woken at all.
    pub(super) fn end_busy_poll(&self, stays_disarmed: bool) -> bool {
        self.ends.is_looked_at.store(false, Ordering::Relaxed);
        let mut hearing = self.ends.hearing.lock();
        let was_disarmed = hearing.disarmed.is_some();
        hearing.has_looked = stays_disarmed;
        match stays_disarmed {
            true if was_disarmed => false,
            true => {
                hearing.disarmed = Some(Box::pin(sleep(DISARMED_MAX)));
                true
            }
            false => {
                hearing.disarmed = None;
                true
            }
        }
    }

    /// Whether it is disarmed.
    #[cfg(test)]
    pub(super) fn is_disarmed(&self) -> bool {
        self.ends.hearing.lock().disarmed.is_some()
    }

    /// From now on whoever reads is woken by what comes, once it has asked to read. Whether it was disarmed.
    pub(super) fn rearm(&self) -> bool {
        self.ends.hearing.lock().disarmed.take().is_some()
    }
}

impl Ends {
    /// Reads what is there; says whether that was all.
    fn read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let room = buffer.initialize_unfilled();
        let most = room.len();
        let read = loop {
            match (&*self.reading).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        buffer.advance(read);
        Ok(0 < read && read < most)
    }
}

fn is_empty<T>(read: &io::Result<T>) -> bool {
    read.as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for OutgoingSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let ends = &*self.ends;
        if ends.is_looked_at.load(Ordering::Relaxed) {
            let read = ends.read(buffer);
            return match is_empty(&read) {
                true => Poll::Pending,
                false => Poll::Ready(read.map(drop)),
            };
        }
        let mut hearing = ends.hearing.lock();
        ready!(hearing.poll_disarmed(context));
        let told = match &mut hearing.readable {
            Some(told) => told,
            none => none.insert(told(Arc::clone(&ends.reading), Interest::READABLE)?),
        };
        loop {
            let mut ready = ready!(told.poll_read_ready(context))?;
            let read = ends.read(buffer);
            if is_empty(&read) {
                ready.clear_ready();
                continue;
            }
            if matches!(read, Ok(true)) {
                // Of more one is told.
                ready.clear_ready();
            }
            return Poll::Ready(read.map(drop));
        }
    }
}

impl AsyncWrite for OutgoingSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.ends.writing.poll_write_ready(context))?;
            if let Ok(done) = ready.try_io(|end| end.get_ref().write(bytes)) {
                return Poll::Ready(done);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written is the system's.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.ends.reading.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn more_than_fits_waits_until_it_is_read_and_comes_back_whole() {
        // More than the system keeps of a connection that nobody reads.
        let bytes: Vec<u8> = (0..32_usize << 20).map(|at| (at % 251) as u8).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut reads, mut writes) = listener.accept().await.unwrap().0.into_split();
        let socket = OutgoingSocket::new(ours).unwrap();
        let (mut our_writer, mut our_reader, sent) = (socket.clone(), socket, bytes.clone());
        let writer = tokio::spawn(async move {
            our_writer.write_all(&sent).await.unwrap();
            our_writer.shutdown().await.unwrap();
        });
        // The writer gets stuck before anybody reads.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!writer.is_finished());
        let echo = tokio::spawn(async move { tokio::io::copy(&mut reads, &mut writes).await });
        let mut came = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), our_reader.read_to_end(&mut came));
        // The echo's end follows its writer's.
        let (read, echoed) = tokio::join!(read, echo);
        read.expect("it does not get stuck").unwrap();
        assert_eq!(echoed.unwrap().unwrap(), bytes.len() as u64);
        assert!(came == bytes);
        writer.await.unwrap();
    }
}

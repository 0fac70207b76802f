//! The server's side of a client connection.
//!
//! ```text
//!   socket ──► receive: decode, gate, submit ──► stores
//!   socket ◄── send: encode, coalesce ◄── outbox (bounded) ◄── replies, watch batches
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use elastin_protocol::store::{WatchGuard, WatchSink};
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::server::Stores;
use super::wire::{self, Answer, Ask, ClientFrame, FRAME_BYTES_MAX, ServerFrame};

/// The most requests of one client in flight; beyond it, its socket is not read until some complete.
const IN_FLIGHT_MAX: usize = 4096;
/// The most watches of one client.
const WATCHES_MAX: usize = 1024;
/// The most frames queued for a client: all replies, and as many watch batches. With one more, the client is too slow
/// and is disconnected; it may reconnect and resume its watches.
const OUTBOX_FRAMES_MAX: usize = 2 * IN_FLIGHT_MAX;
/// Frames are coalesced into one write up to about this size.
const WRITE_BYTES: usize = 64 << 10;

/// Admits the requests of a connection. Closed when the client has reconnected on another one.
#[derive(Default)]
pub(crate) struct Gate {
    /// Held during a submission, so that nothing is submitted after `close`.
    closed: Mutex<bool>,
    on_close: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.on_close.notify_one();
    }

    /// Calls `submit` unless the gate is closed. Whether it did.
    pub(crate) fn pass(&self, submit: impl FnOnce()) -> bool {
        let closed = self.closed.lock();
        if !*closed {
            submit();
        }
        !*closed
    }
}

/// Serves a client until it disconnects, is replaced, or violates a limit.
pub(crate) async fn run(stream: TcpStream, stores: &Stores, gate: &Gate) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let (sender, receiver) = mpsc::channel(OUTBOX_FRAMES_MAX);
    let overflow = Arc::new(Notify::new());
    let outbox = Outbox { sender, overflow };
    tokio::select! {
        ended = receive(reader, stores, gate, &outbox) => ended,
        ended = send(writer, receiver) => ended,
        () = outbox.overflow.notified() => Err(io::Error::other("the client reads too slowly")),
        () = gate.on_close.notified() => Ok(()),
    }
}

/// The queue of frames to send.
#[derive(Clone)]
struct Outbox {
    sender: mpsc::Sender<ServerFrame>,
    overflow: Arc<Notify>,
}

impl Outbox {
    fn put(&self, id: u64, answer: Answer) {
        // A closed channel means that the connection has ended; a full one, that it must end.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(ServerFrame { id, answer }) {
            self.overflow.notify_one();
        }
    }
}

async fn receive(reader: OwnedReadHalf, stores: &Stores, gate: &Gate, outbox: &Outbox) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(WRITE_BYTES, reader);
    let mut buffer = Vec::new();
    let mut watches = BTreeMap::new();
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    while let Some(ClientFrame { id, ask }) = wire::read(&mut reader, &mut buffer, FRAME_BYTES_MAX).await? {
        // One large frame must not hold its memory forever.
        buffer.shrink_to(WRITE_BYTES);
        let permit = in_flight.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let submitted = gate.pass(|| submit(stores, outbox, &mut watches, id, ask, permit));
        if !submitted {
            break;
        }
    }
    Ok(())
}

fn submit(
    stores: &Stores,
    outbox: &Outbox,
    watches: &mut BTreeMap<u64, WatchGuard>,
    id: u64,
    ask: Ask,
    permit: OwnedSemaphorePermit,
) {
    let outbox = outbox.clone();
    match ask {
        Ask::State(request) => stores.state.submit(
            request,
            Box::new(move |result| {
                outbox.put(id, Answer::State(result));
                drop(permit);
            }),
        ),
        Ask::Coordination(request) => stores.coordination.submit(
            request,
            Box::new(move |result| {
                outbox.put(id, Answer::Coordination(result));
                drop(permit);
            }),
        ),
        Ask::Watch { prefix, from } if watches.len() < WATCHES_MAX => {
            let sink: WatchSink = Box::new(move |batch| outbox.put(id, Answer::Watch(batch)));
            watches.insert(id, stores.coordination.watch(prefix, from, sink));
        }
        Ask::Watch { .. } => {
            let failure = elastin_protocol::store::StoreFailure::Overloaded;
            outbox.put(id, Answer::Watch(Err(failure.into())));
        }
        Ask::Unwatch => {
            watches.remove(&id);
        }
    }
}

async fn send(mut writer: OwnedWriteHalf, mut outbox: mpsc::Receiver<ServerFrame>) -> io::Result<()> {
    let mut frames = Vec::new();
    // Never ends by itself: the sender lives as long as the connection.
    while let Some(frame) = outbox.recv().await {
        append(&mut frames, &frame)?;
        while frames.len() < WRITE_BYTES
            && let Ok(frame) = outbox.try_recv()
        {
            append(&mut frames, &frame)?;
        }
        writer.write_all(&frames).await?;
        frames.clear();
        frames.shrink_to(WRITE_BYTES);
    }
    Ok(())
}

fn append(frames: &mut Vec<u8>, frame: &ServerFrame) -> io::Result<()> {
    // The stores' own limits are well below that of a frame.
    wire::append(frames, frame).map_err(|bytes| io::Error::other(format!("a reply of {bytes} bytes")))
}

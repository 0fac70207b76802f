//! One connection: opened by this node or by its peer, then read and written until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use elastin_types::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Inner;
use super::link::Link;
use crate::frame::{self, Class, FrameError};
use crate::handshake::{self, HandshakeError};
use crate::security::{Reader, Secured, Writer};

/// How long a dialled peer may take to answer the handshake, so that a dead address does not hold frames for ever.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// How much is read at once; large enough that one system call carries many small frames.
const READ_BYTES: usize = 64 << 10;

/// How many frames are taken in together: enough that it pays, few enough that actors run the first ones while the next
/// are being decoded.
const FRAMES_AT_ONCE: usize = 8;

/// How many strangers may be at the door at a time. Whoever has not said who it is costs memory, so the others wait.
const GREETINGS_MAX: usize = 256;

/// How long to wait when no connection can be accepted, for instance because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Opens a connection to a peer and carries it until it breaks.
pub(super) async fn dial(inner: Arc<Inner>, peer: NodeId, address: Option<SocketAddr>, link: Arc<Link>) {
    let opened = timeout(CONNECT_TIME_MAX, async {
        let address = address.ok_or_else(|| std::io::Error::other("the peer's address is not known"))?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut secured = inner.security.secure_dialled(stream).await?;
        handshake::dial(&mut secured.reader, &mut secured.writer, &inner.identity, peer).await?;
        Ok::<_, HandshakeError>(secured)
    });
    let opened = tokio::select! {
        opened = opened => opened,
        () = link.closed() => return,
    };
    match opened {
        Ok(Ok(secured)) => carry_both_ways(&inner, peer, secured, &link).await,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "could not connect");
            inner.break_link(peer, &link);
        }
        Err(_) => {
            tracing::debug!(%peer, "could not connect in time");
            inner.break_link(peer, &link);
        }
    }
}

/// Accepts connections until the transport is closed.
pub(super) async fn accept_all(inner: Arc<Inner>, listener: TcpListener) {
    let greetings = Arc::new(Semaphore::new(GREETINGS_MAX));
    while let Ok(permit) = Arc::clone(&greetings).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                if inner.is_closed() {
                    return;
                }
                let inner = Arc::clone(&inner);
                tokio::spawn(async move {
                    let greeted = greet(&inner, stream).await;
                    drop(permit);
                    if let Some((peer, secured)) = greeted {
                        carry_accepted(inner, peer, secured).await;
                    }
                });
            }
            Err(error) => {
                // What is open goes on, new peers wait.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Finds out who has dialled; nobody if it is not one of ours.
async fn greet(inner: &Inner, stream: TcpStream) -> Option<(NodeId, Secured)> {
    let greeted = timeout(CONNECT_TIME_MAX, async {
        stream.set_nodelay(true)?;
        let mut secured = inner.security.secure_accepted(stream).await?;
        let (peer, _) = handshake::accept(&mut secured.reader, &mut secured.writer, &inner.identity).await?;
        Ok::<_, HandshakeError>((peer, secured))
    });
    match greeted.await {
        Ok(Ok((peer, secured))) if secured.may_be_node || !inner.has_address(peer) => Some((peer, secured)),
        Ok(Ok((peer, _))) => {
            tracing::warn!(%peer, "refused a connection: a client's certificate does not speak for a node");
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "refused a connection");
            None
        }
        Err(_) => {
            tracing::warn!("a connection said nothing");
            None
        }
    }
}

/// Carries a connection that a peer has opened. One that can be dialled is answered on a connection of its own.
async fn carry_accepted(inner: Arc<Inner>, peer: NodeId, secured: Secured) {
    if inner.has_address(peer) {
        let link = inner.link(peer);
        read_frames(&inner, peer, secured.reader, &link).await;
        // Kept until here: a half-closed stream would look broken to the peer.
        drop(secured.writer);
    } else {
        let link = inner.adopt(peer);
        carry_both_ways(&inner, peer, secured, &link).await;
    }
}

async fn carry_both_ways(inner: &Arc<Inner>, peer: NodeId, secured: Secured, link: &Arc<Link>) {
    link.open(secured.direct);
    inner.receiver.link_up(peer);
    tokio::join!(
        read_frames(inner, peer, secured.reader, link),
        write_frames(inner, peer, secured.writer, link)
    );
}

async fn read_frames(inner: &Arc<Inner>, peer: NodeId, mut reader: Reader, link: &Arc<Link>) {
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut frames = Vec::new();
    let ended = async {
        loop {
            let whole = take_some(&mut input, &mut frames);
            let is_full = frames.len() == FRAMES_AT_ONCE;
            if !frames.is_empty() {
                let began = Instant::now();
                let count = frames.len();
                let bytes = frames.iter().map(|(_, payload)| frame::length_with(payload)).sum();
                inner.receiver.frames(peer, frames.drain(..));
                inner.stages.received.passed(count, bytes, began.elapsed());
            }
            if let Err(error) = whole {
                return tracing::warn!(%peer, %error, "dropped a connection");
            }
            if is_full {
                continue;
            }
            input.reserve(READ_BYTES);
            match reader.read_buf(&mut input).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return tracing::debug!(%peer, %error, "a connection broke"),
            }
        }
    };
    tokio::select! {
        () = ended => inner.break_link(peer, link),
        () = link.closed() => {}
    }
}

/// Takes some frames off the front, as far as they are there.
fn take_some(input: &mut BytesMut, frames: &mut Vec<(Class, Bytes)>) -> Result<(), FrameError> {
    while frames.len() < FRAMES_AT_ONCE
        && let Some(frame) = frame::take(input)?
    {
        frames.push(frame);
    }
    Ok(())
}

async fn write_frames(inner: &Arc<Inner>, peer: NodeId, mut writer: Writer, link: &Arc<Link>) {
    let mut batch = BytesMut::new();
    loop {
        let frames = link.take(&mut batch);
        if frames == 0 {
            tokio::select! {
                () = link.filled() => continue,
                () = link.closed() => return,
            }
        }
        let began = Instant::now();
        let written = async {
            writer.write_all(&batch).await?;
            // A secured stream keeps bytes back until it is told not to.
            writer.flush().await
        };
        let written = tokio::select! {
            written = written => written,
            () = link.closed() => return,
        };
        if let Err(error) = written {
            tracing::debug!(%peer, %error, "a connection broke");
            return inner.break_link(peer, link);
        }
        inner.stages.sent.passed(frames, batch.len(), began.elapsed());
        if frames > 1 {
            // Where there are several there will be more: those who are about to send get to do so first.
            tokio::task::yield_now().await;
        }
    }
}

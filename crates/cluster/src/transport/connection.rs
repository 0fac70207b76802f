//! The life of a connection: dialled or accepted, authenticated, then read and written until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use elastin_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::inbound::Inbound;
use super::link::Link;
use super::{SpawnReader, TransportInner};
use crate::handshake::{self, HandshakeError};
use crate::security::{Secured, Writer};
use crate::tuning::{ACCEPT_PAUSE, CONNECT_TIME_MAX, HANDSHAKES_MAX};

/// A connection after its handshake.
struct Opened {
    version: u16,
    secured: Secured,
    /// Lets senders write without blocking, if the connection is not encrypted.
    direct: Option<std::net::TcpStream>,
    spawn_reader: SpawnReader,
}

/// Opens a connection to a peer and runs it until it breaks.
pub(super) async fn dial(inner: Arc<TransportInner>, peer: NodeId, address: Option<SocketAddr>, link: Arc<Link>) {
    let opened = timeout(CONNECT_TIME_MAX, async {
        let address = address.ok_or_else(|| std::io::Error::other("the peer's address is unknown"))?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let socket = inner.io.dialled(stream)?;
        let mut secured = inner.security.secure_dialled(socket.reader, socket.writer).await?;
        if !inner.is_certificate_of(peer, secured.certificate.as_deref()) {
            return Err(std::io::Error::other("the certificate is not the peer's").into());
        }
        let version = handshake::dial(&mut secured.reader, &mut secured.writer, &inner.identity, peer).await?;
        Ok::<_, HandshakeError>(Opened {
            version,
            secured,
            direct: socket.direct.filter(|_| inner.security.is_plain()),
            spawn_reader: socket.spawn_reader,
        })
    });
    let opened = tokio::select! {
        opened = opened => opened,
        () = link.closed() => return,
    };
    match opened {
        Ok(Ok(opened)) => run_link(&inner, peer, opened, &link).await,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "could not connect");
            inner.break_link(peer, &link);
        }
        Err(_) => {
            tracing::debug!(%peer, "could not connect: timeout");
            inner.break_link(peer, &link);
        }
    }
}

/// Accepts connections until the transport is closed.
pub(super) async fn accept_all(inner: Arc<TransportInner>, listener: TcpListener) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    while let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                if inner.is_closed() {
                    return;
                }
                let inner = Arc::clone(&inner);
                tokio::spawn(async move {
                    let authenticated = authenticate(&inner, stream).await;
                    drop(permit);
                    if let Some((peer, opened)) = authenticated {
                        run_accepted(inner, peer, opened).await;
                    }
                });
            }
            Err(error) => {
                // Open connections are not affected; new peers wait.
                tracing::warn!(%error, "could not accept a connection; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Authenticates the peer that has dialled, and negotiates the wire version. None if the peer is rejected.
async fn authenticate(inner: &TransportInner, stream: TcpStream) -> Option<(NodeId, Opened)> {
    let handshake = timeout(CONNECT_TIME_MAX, async {
        stream.set_nodelay(true)?;
        let socket = inner.io.accepted(stream)?;
        let mut secured = inner.security.secure_accepted(socket.reader, socket.writer).await?;
        let (peer, version) = handshake::accept(&mut secured.reader, &mut secured.writer, &inner.identity).await?;
        let opened = Opened {
            version,
            secured,
            direct: socket.direct.filter(|_| inner.security.is_plain()),
            spawn_reader: socket.spawn_reader,
        };
        Ok::<_, HandshakeError>((peer, opened))
    });
    match handshake.await {
        Ok(Ok((peer, opened))) => match rejection(inner, peer, &opened.secured) {
            None => Some((peer, opened)),
            Some(reason) => {
                tracing::warn!(%peer, "refused a connection: {reason}");
                None
            }
        },
        Ok(Err(error)) => {
            tracing::warn!(%error, "refused a connection");
            None
        }
        Err(_) => {
            tracing::warn!("refused a connection: handshake timeout");
            None
        }
    }
}

/// The reason to reject a peer that can't be the node that it claims to be.
fn rejection(inner: &TransportInner, peer: NodeId, secured: &Secured) -> Option<&'static str> {
    if !secured.may_be_node && inner.has_address(peer) {
        return Some("a client's certificate can't authenticate a node");
    }
    let matches = inner.is_certificate_of(peer, secured.certificate.as_deref());
    (!matches).then_some("the peer has another certificate")
}

/// Runs a connection that a peer has opened. A peer that can be dialled is answered on a separate connection.
async fn run_accepted(inner: Arc<TransportInner>, peer: NodeId, opened: Opened) {
    if inner.has_address(peer) {
        let Opened {
            secured, spawn_reader, ..
        } = opened;
        let link = inner.link(peer);
        spawn_reader(Inbound::new(&inner, peer, &link, secured.reader, Some(secured.writer)));
    } else {
        let Some(link) = inner.adopt(peer, opened.secured.certificate.clone()) else {
            return;
        };
        run_link(&inner, peer, opened, &link).await;
    }
}

/// Reads and writes a connection.
async fn run_link(inner: &Arc<TransportInner>, peer: NodeId, opened: Opened, link: &Arc<Link>) {
    let Opened {
        version,
        secured,
        direct,
        spawn_reader,
    } = opened;
    tracing::debug!(%peer, version, "a link is open");
    link.open(version, direct);
    inner.announce_link(peer, link);
    spawn_reader(Inbound::new(inner, peer, link, secured.reader, None));
    write_frames(inner, peer, secured.writer, link).await;
}

async fn write_frames(inner: &Arc<TransportInner>, peer: NodeId, mut writer: Writer, link: &Arc<Link>) {
    let mut batch = Vec::new();
    loop {
        let frames = link.take(&mut batch);
        if frames == 0 {
            tokio::select! {
                biased;
                () = link.filled() => continue,
                () = link.closed() => return,
            }
        }
        let began = Instant::now();
        let written = async {
            writer.write_all(&batch).await?;
            // TLS buffers bytes until it is flushed.
            writer.flush().await
        };
        let written = tokio::select! {
            biased;
            written = written => written,
            () = link.closed() => return,
        };
        if let Err(error) = written {
            tracing::debug!(%peer, %error, "a connection broke");
            return inner.break_link(peer, link);
        }
        inner.metrics.sent.record(frames, batch.len(), began.elapsed());
        // A busy writer lets other tasks run from time to time.
        consume_budget().await;
    }
}

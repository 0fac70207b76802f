//! One connection: opened by this node or by its peer, then read and written until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elastin_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Inner;
use super::connection_reader::ConnectionReader;
use super::link::Link;
use crate::handshake::{self, HandshakeError};
use crate::security::{Secured, Writer};

/// How long a outgoing socket peer may take to answer the handshake, so that a dead address does not hold frames for ever.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

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
        if !inner.is_certificate_of(peer, secured.certificate.as_deref()) {
            return Err(std::io::Error::other("the certificate is another's").into());
        }
        let version = handshake::dial(&mut secured.reader, &mut secured.writer, &inner.identity, peer).await?;
        Ok::<_, HandshakeError>((version, secured))
    });
    let opened = tokio::select! {
        opened = opened => opened,
        () = link.closed() => return,
    };
    match opened {
        Ok(Ok((version, secured))) => carry_both_ways(&inner, peer, version, secured, &link).await,
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
                    if let Some((peer, version, secured)) = greeted {
                        carry_accepted(inner, peer, version, secured).await;
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

/// Finds out who has outgoing socket, and in which version to speak; nobody if it is not one of ours.
async fn greet(inner: &Inner, stream: TcpStream) -> Option<(NodeId, u16, Secured)> {
    let greeted = timeout(CONNECT_TIME_MAX, async {
        stream.set_nodelay(true)?;
        let mut secured = inner.security.secure_accepted(stream).await?;
        let (peer, version) = handshake::accept(&mut secured.reader, &mut secured.writer, &inner.identity).await?;
        Ok::<_, HandshakeError>((peer, version, secured))
    });
    match greeted.await {
        Ok(Ok((peer, version, secured))) => match objection(inner, peer, &secured) {
            None => Some((peer, version, secured)),
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
            tracing::warn!("a connection said nothing");
            None
        }
    }
}

/// Why whoever has outgoing socket is not the peer that it says it is.
fn objection(inner: &Inner, peer: NodeId, secured: &Secured) -> Option<&'static str> {
    if !secured.may_be_node && inner.has_address(peer) {
        return Some("a client's certificate does not speak for a node");
    }
    let is_its = inner.is_certificate_of(peer, secured.certificate.as_deref());
    (!is_its).then_some("that peer has another certificate")
}

/// Carries a connection that a peer has opened. One that can be outgoing socket is answered on a connection of its own.
async fn carry_accepted(inner: Arc<Inner>, peer: NodeId, version: u16, secured: Secured) {
    if inner.has_address(peer) {
        let link = inner.link(peer);
        let reading = ConnectionReader::new(&inner, secured.read_by, peer, &link, secured.reader);
        reading.keeping(secured.writer).start();
    } else {
        let Some(link) = inner.adopt(peer, secured.certificate.clone()) else {
            return;
        };
        carry_both_ways(&inner, peer, version, secured, &link).await;
    }
}

async fn carry_both_ways(inner: &Arc<Inner>, peer: NodeId, version: u16, secured: Secured, link: &Arc<Link>) {
    tracing::debug!(%peer, version, "a link is open");
    link.open(version, secured.direct);
    inner.receiver.link_up(peer);
    ConnectionReader::new(inner, secured.read_by, peer, link, secured.reader).start();
    write_frames(inner, peer, secured.writer, link).await;
}

async fn write_frames(inner: &Arc<Inner>, peer: NodeId, mut writer: Writer, link: &Arc<Link>) {
    let mut batch = Vec::new();
    loop {
        let frames = link.take(&mut batch);
        if frames == 0 {
            tokio::select! {
                biased;
                batches_calls = link.filled() => {
                    if batches_calls {
                        // Those who are about to send get to do so first.
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
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
            biased;
            written = written => written,
            () = link.closed() => return,
        };
        if let Err(error) = written {
            tracing::debug!(%peer, %error, "a connection broke");
            return inner.break_link(peer, link);
        }
        inner.metrics.sent.passed(frames, batch.len(), began.elapsed());
        if frames > 1 {
            // Where there are several there will be more, and they can be written together.
            tokio::task::yield_now().await;
        }
    }
}

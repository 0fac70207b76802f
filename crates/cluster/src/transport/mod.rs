//! Connections to peers: ordered frames, coalesced writes, bounded send queues.
//!
//! A node dials each peer that it sends to and that has an address. A peer without an address (a client) is answered on the
//! connection that it opened, so it keeps one open to every peer that it knows. The two connections of a pair share their fate:
//! when either breaks, both are closed and the [`Receiver`] is notified once. Frames in flight are then in doubt in both
//! directions.
//!
//! While a connection is being opened, protocol frames are dropped, because the protocol retransmits them when the link is up.
//! Control and admin frames are queued.
//!
//! The transport makes no decisions: its owner knows the peers and interprets the frames. Two implementations of [`ConnectionIo`]
//! read and write open connections: [`plain`] with ordinary tokio tasks, and [`fast`] with threads that busy-poll.

mod connection;
mod fast;
mod inbound;
mod link;
mod metrics;
mod peer_penalty;
mod plain;
mod read_buffer;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use elastin_types::NodeId;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::frame::{self, Class, Frames};
use crate::handshake::Identity;
use crate::security::{Reader, Security, Writer};
use crate::tuning::REDIAL_AFTER;
use inbound::Inbound;
use metrics::TransportMetrics;
use peer_penalty::PeerPenalties;

pub(crate) use fast::busy_poll_time;
pub use link::LinkTraffic;
pub(crate) use link::{FlushMode, Link};
pub use metrics::{StageMeasures, TransportMeasures};

/// Callbacks of the transport to its owner. They run on the threads that read connections: they must not block.
pub trait Receiver: Send + Sync + 'static {
    /// Handles frames from a peer that arrived together, in the order in which they were sent. `task` is the waker of the reading
    /// task, if that can take [steps](FollowUp::Steps) between reads.
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, task: Option<&Waker>) -> Option<FollowUp>;

    /// A [`FollowUp::Run`] takes long, and another thread reads its connection in the meantime.
    fn follow_up_is_late(&self);

    /// There is a connection to a peer: frames sent from now on use it.
    fn link_up(&self, peer: NodeId);

    /// The connections with a peer broke: unacknowledged frames may or may not have arrived.
    fn link_down(&self, peer: NodeId);
}

/// Work that received frames leave to their reader. A reader that can't do it drops it at once: its owner must then do the work
/// elsewhere.
pub enum FollowUp {
    /// Work that may take long.
    Run(Box<dyn FnOnce() + Send>),
    /// Steps that the reading task takes between further reads. A later follow-up replaces them.
    Steps(Box<dyn Steps>),
}

/// See [`FollowUp::Steps`].
pub trait Steps: Send {
    /// Takes the next step, or waits until that is possible. Returns whether another one follows.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<bool>;
}

/// Reads and writes open connections.
trait ConnectionIo: Send + Sync {
    /// Wraps a connection that this process has opened.
    fn dialled(&self, stream: TcpStream) -> io::Result<Socket>;

    /// Wraps a connection that a peer has opened.
    fn accepted(&self, stream: TcpStream) -> io::Result<Socket>;

    /// Waits until its own threads have run every task that was queued before this call.
    fn caught_up(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// An open connection before the handshake.
struct Socket {
    reader: Reader,
    writer: Writer,
    /// Lets senders write without blocking, if the connection is not encrypted.
    direct: Option<std::net::TcpStream>,
    /// Spawns the task that reads the connection.
    spawn_reader: SpawnReader,
}

type SpawnReader = Box<dyn FnOnce(Inbound) + Send>;

/// The reason why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The peer's send queue is full.
    #[error("the peer's send queue is full")]
    Backlogged,
    /// The frame exceeds the size limit.
    #[error("the frame is too large")]
    TooLarge,
}

/// All connections of one node.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<TransportInner>,
}

/// Configuration of a [`Transport`].
pub struct TransportConfig {
    /// The cluster's name; nodes of other clusters are refused.
    pub cluster: String,
    /// This node.
    pub me: NodeId,
    /// How nodes authenticate each other.
    pub security: Security,
    /// Accepts connections, if the node can be dialled.
    pub listener: Option<TcpListener>,
    /// Whether connection readers may [busy-poll](TransportMeasures::busy_poll_time) before they park. Otherwise connections are
    /// read and written by tokio's tasks alone.
    pub busy_poll: bool,
    /// The supported wire versions, from the oldest to the newest: [`WIRE_VERSIONS`](crate::WIRE_VERSIONS).
    pub versions: (u16, u16),
}

struct TransportInner {
    identity: Identity,
    security: Security,
    receiver: Arc<dyn Receiver>,
    io: Box<dyn ConnectionIo>,
    handle: tokio::runtime::Handle,
    // This node can't be dialled, so it dials all peers.
    dials_all: bool,
    metrics: Arc<TransportMetrics>,
    // One lock for addresses and links, never held while a frame is written.
    peers: Mutex<Peers>,
    // Held from a change of a link until the receiver has been notified, so that it learns of a peer's links in their order.
    notifications: Mutex<()>,
}

#[derive(Default)]
struct Peers {
    addresses: BTreeMap<NodeId, SocketAddr>,
    links: BTreeMap<NodeId, Arc<Link>>,
    /// Fingerprints of the certificates that members have published.
    certificates: BTreeMap<NodeId, String>,
    /// Fingerprints of the certificates presented on the connections that peers without an address have opened.
    presented: BTreeMap<NodeId, Option<String>>,
    penalties: PeerPenalties,
    closed: bool,
}

impl Peers {
    fn is_certificate_of(&self, peer: NodeId, presented: Option<&str>) -> bool {
        let published = self.certificates.get(&peer);
        published.is_none_or(|published| presented == Some(published))
    }

    fn is_link_of(&self, peer: NodeId, link: &Arc<Link>) -> bool {
        self.links.get(&peer).is_some_and(|other| Arc::ptr_eq(other, link))
    }
}

impl Transport {
    /// Starts to accept and dial connections. Must be called inside a tokio runtime, which runs their tasks.
    pub fn start(config: TransportConfig, receiver: Arc<dyn Receiver>) -> Transport {
        let secret = match &config.security {
            Security::Secret(secret) => Some(secret.clone()),
            Security::Trusting | Security::Certificates(_) => None,
        };
        let inner = Arc::new(TransportInner {
            identity: Identity {
                cluster: config.cluster,
                me: config.me,
                versions: config.versions,
                secret,
            },
            security: config.security,
            receiver,
            io: match config.busy_poll {
                true => Box::new(fast::FastIo),
                false => Box::new(plain::PlainIo),
            },
            handle: tokio::runtime::Handle::current(),
            dials_all: config.listener.is_none(),
            metrics: Arc::default(),
            peers: Mutex::default(),
            notifications: Mutex::default(),
        });
        if let Some(listener) = config.listener {
            tokio::spawn(connection::accept_all(Arc::clone(&inner), listener));
        }
        Transport { inner }
    }

    /// Learns the address of a peer.
    pub fn learn_address(&self, peer: NodeId, address: SocketAddr) {
        self.inner.peers.lock().addresses.insert(peer, address);
        if self.inner.dials_all {
            self.inner.link(peer);
        }
    }

    /// Learns the certificate of a peer, and closes a connection that presented another one in its name.
    pub fn learn_certificate(&self, peer: NodeId, certificate: &str) {
        let impostor = {
            let mut peers = self.inner.peers.lock();
            peers.certificates.insert(peer, certificate.to_owned());
            let presented = peers.presented.get(&peer);
            let differs = presented.is_some_and(|presented| presented.as_deref() != Some(certificate));
            peers.links.get(&peer).filter(|_| differs).cloned()
        };
        if let Some(link) = impostor {
            tracing::warn!(%peer, "closed a connection: the peer has another certificate");
            self.inner.break_link(peer, &link);
        }
    }

    /// Forgets a peer that has left, and closes its connections.
    pub fn forget(&self, peer: NodeId) {
        let link = {
            let mut peers = self.inner.peers.lock();
            peers.addresses.remove(&peer);
            peers.penalties.forget(peer);
            peers.certificates.remove(&peer);
            peers.presented.remove(&peer);
            peers.links.remove(&peer)
        };
        if let Some(link) = link {
            link.close();
        }
    }

    /// Enqueues a frame for a peer, dialling it if necessary. It is written as soon as the socket accepts it. Only a reply of the
    /// peer, or [`Receiver::link_down`], tells whether it has arrived.
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        // Only the protocol retransmits when there is a connection.
        let needs_connection = class == Class::Protocol;
        let link = self.inner.link(to);
        link.put(needs_connection, |out| frame::put(out, class, payload))?;
        link.flush(FlushMode::Coalesce);
        Ok(())
    }

    /// The bytes sent and received so far.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.metrics.received.bytes() + self.inner.metrics.sent.bytes()
    }

    /// Traffic on the connections with a peer; zero if there are none.
    pub fn traffic_with(&self, peer: NodeId) -> LinkTraffic {
        let link = self.inner.peers.lock().links.get(&peer).cloned();
        link.map(|link| link.traffic()).unwrap_or_default()
    }

    /// The transport's metrics.
    pub fn measures(&self) -> TransportMeasures {
        let links: Vec<Arc<Link>> = self.inner.peers.lock().links.values().cloned().collect();
        let versions: Vec<u16> = links.iter().filter_map(|link| link.version()).collect();
        let metrics = &self.inner.metrics;
        TransportMeasures {
            received: metrics.received.measures(),
            sent: metrics.sent.measures(),
            queued_bytes: links.iter().map(|link| link.queued_bytes() as u64).sum(),
            backlogged: metrics.backlogged.load(Ordering::Relaxed),
            links: versions.len() as u64,
            wire_version_oldest: versions.into_iter().min().unwrap_or(0),
            busy_poll_time: busy_poll_time(),
        }
    }

    /// Waits until the transport's own threads have run every task that was queued before this call.
    pub async fn caught_up(&self) {
        self.inner.io.caught_up().await;
    }

    /// The send queue of a peer, which is dialled if necessary.
    pub(crate) fn link(&self, to: NodeId) -> Arc<Link> {
        self.inner.link(to)
    }

    /// Closes every connection and opens no more.
    pub fn close(&self) {
        let links = {
            let mut peers = self.inner.peers.lock();
            peers.closed = true;
            std::mem::take(&mut peers.links)
        };
        for link in links.into_values() {
            link.close();
        }
    }
}

impl TransportInner {
    fn link(self: &Arc<Self>, to: NodeId) -> Arc<Link> {
        let mut peers = self.peers.lock();
        if let Some(link) = peers.links.get(&to) {
            return Arc::clone(link);
        }
        let link = Link::new(Arc::clone(&self.metrics));
        let address = peers.addresses.get(&to).copied().filter(|_| !peers.closed);
        peers.links.insert(to, Arc::clone(&link));
        self.handle
            .spawn(connection::dial(Arc::clone(self), to, address, Arc::clone(&link)));
        link
    }

    /// The link of a peer that can't be dialled: it is answered on the connection that it has just opened. None if the peer has
    /// published another certificate in the meantime.
    fn adopt(&self, peer: NodeId, presented: Option<String>) -> Option<Arc<Link>> {
        let link = Link::new(Arc::clone(&self.metrics));
        let _notifying = self.notifications.lock();
        let older = {
            let mut peers = self.peers.lock();
            if !peers.is_certificate_of(peer, presented.as_deref()) {
                return None;
            }
            peers.presented.insert(peer, presented);
            peers.links.insert(peer, Arc::clone(&link))
        };
        if let Some(older) = older {
            older.close();
            self.receiver.link_down(peer);
        }
        Some(link)
    }

    /// Whether the presented certificate, or none, matches the one that the peer has published, if any.
    fn is_certificate_of(&self, peer: NodeId, presented: Option<&str>) -> bool {
        self.peers.lock().is_certificate_of(peer, presented)
    }

    fn has_address(&self, peer: NodeId) -> bool {
        self.peers.lock().addresses.contains_key(&peer)
    }

    fn is_closed(&self) -> bool {
        self.peers.lock().closed
    }

    /// Penalizes a peer for a malformed frame.
    fn penalize(&self, peer: NodeId) {
        self.peers.lock().penalties.record(peer, Instant::now());
    }

    /// How long a new connection with a penalized peer is not read.
    fn pause_before_reading(&self, peer: NodeId) -> Duration {
        self.peers.lock().penalties.pause(peer, Instant::now())
    }

    /// Notifies the receiver of an open link, unless it is closed already.
    fn announce_link(&self, peer: NodeId, link: &Arc<Link>) {
        let _notifying = self.notifications.lock();
        let is_current = self.peers.lock().is_link_of(peer, link);
        if is_current {
            self.receiver.link_up(peer);
        }
    }

    /// Closes the pair's connections and notifies the receiver, once for each link.
    fn break_link(self: &Arc<Self>, peer: NodeId, link: &Arc<Link>) {
        let _notifying = self.notifications.lock();
        let current = {
            let mut peers = self.peers.lock();
            let current = peers.is_link_of(peer, link);
            if current {
                peers.links.remove(&peer);
                peers.presented.remove(&peer);
            }
            current && !peers.closed
        };
        link.close();
        if current {
            self.receiver.link_down(peer);
            if self.dials_all {
                self.handle.spawn(redial(Arc::clone(self), peer));
            }
        }
    }
}

/// Reopens a link after a delay, unless the peer has left in the meantime.
async fn redial(inner: Arc<TransportInner>, peer: NodeId) {
    tokio::time::sleep(REDIAL_AFTER).await;
    if inner.has_address(peer) && !inner.is_closed() {
        inner.link(peer);
    }
}

#[cfg(test)]
mod tests;

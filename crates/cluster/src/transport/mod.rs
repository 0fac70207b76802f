//! Connections to peers: frames in order on each, coalesced writes, a bound on what may wait.
//!
//! A node dials each peer that it sends to and that has an address; a peer without one (a client) is answered on the
//! connection that it opened, and therefore keeps one open to every peer that it knows. The two connections of a pair stand
//! and fall together: when either breaks, both are closed and the [`Receiver`] hears of it once, so that frames in doubt are
//! in doubt for both directions.
//!
//! While a connection is being opened, protocol frames are dropped, because their sender transmits them again when it
//! hears that the link is up; control and admin frames wait.
//!
//! Nothing here decides anything: who is a peer and what a frame means is other people's business.

mod busy_poll;
mod call_batching;
mod connection;
mod connection_reader;
mod io_threads;
mod link;
mod metrics;
mod outbox;
mod outgoing_socket;
mod peer_penalty;
mod read_buffer;
mod reply_reader;
mod socket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use elastin_runtime::InlineTask;
use elastin_types::NodeId;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::frame::{self, Class, Frames};
use crate::handshake::Identity;
use crate::security::Security;
use io_threads::IoThreads;
use link::Link;
use metrics::TransportMetrics;
use peer_penalty::PeerPenalty;

pub(crate) use busy_poll::busy_poll_time;
pub(crate) use connection_reader::ReaderKind;
pub(crate) use link::FlushMode;
pub use link::{LINK_BYTES_MAX, LinkTraffic};
pub use metrics::{StageMeasures, TransportMeasures};
pub(crate) use outbox::{NowAwaited, Outbox};
pub(crate) use outgoing_socket::OutgoingSocket;
pub(crate) use socket::Socket;

/// How long a node that dials everybody waits before it dials a lost peer again.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What the transport tells its owner. Called from the threads that read connections: it must not block.
pub trait Receiver: Send + Sync + 'static {
    /// Frames from a peer that came together, in the order in which they were sent. A task that `comes_again` can be left what callers
    /// send: this is its waker.
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, comes_again: Option<&Waker>) -> Option<ReceiveOutcome>;

    /// Runs what came of frames. This may take long.
    fn run(&self, inline_task: InlineTask);

    /// What is run takes long: whatever waits for its end is seen to.
    fn catch_up(&self);

    /// Sends what callers have left to be sent together. False if that was nothing, or nobody `comes_again` for more: from now on
    /// they leave nothing.
    fn flush_batch(&self, comes_again: bool) -> bool;

    /// There is a connection to a peer: frames sent from now on go over it.
    fn link_up(&self, peer: NodeId);

    /// The connections with a peer broke: what was sent and not answered may or may not have arrived.
    fn link_down(&self, peer: NodeId);
}

/// What comes of frames that were taken in, and is up to whoever has read them.
pub enum ReceiveOutcome {
    /// An actor that this thread may run: it is [run](Receiver::run) or dropped at once.
    InlineTask(InlineTask),
    /// A caller who has heard of an outcome.
    Outcome,
    /// PendingCalls who have heard of outcomes, and are likely to call again: what they send is left until it is
    /// [sent](Receiver::flush_batch), as soon as they have had their turn.
    Calls,
}

/// Why a frame was not taken. It was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Too much waits for this peer already.
    #[error("too much waits for the peer already")]
    Backlogged,
    /// The frame is longer than may be sent.
    #[error("the frame is too large")]
    TooLarge,
}

/// All connections of one node.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<Inner>,
}

/// What a [`Transport`] is made with.
pub struct TransportConfig {
    /// The cluster's name; nodes of other clusters are refused.
    pub cluster: String,
    /// This node.
    pub me: NodeId,
    /// How nodes make sure that they talk to nodes of their cluster.
    pub security: Security,
    /// Where connections are accepted, if the node can be outgoing socket.
    pub listener: Option<TcpListener>,
    /// Whether who reads connections may [busy_poll](TransportMeasures::busy_poll_time) for frames for a moment before it sleeps. That is up
    /// to the whole process: if one transport may not, nobody does.
    pub looks: bool,
    /// The versions of the wire that it speaks, from the oldest to the newest: [`WIRE_VERSIONS`](crate::WIRE_VERSIONS).
    pub versions: (u16, u16),
}

struct Inner {
    identity: Identity,
    security: Security,
    receiver: Arc<dyn Receiver>,
    handle: tokio::runtime::Handle,
    // Nobody can dial this node, so it dials everybody.
    dials_all: bool,
    metrics: Arc<TransportMetrics>,
    // One lock for addresses and links, never held while a frame is written.
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    addresses: BTreeMap<NodeId, SocketAddr>,
    links: BTreeMap<NodeId, Arc<Link>>,
    /// The certificates that members say they have.
    certificates: BTreeMap<NodeId, String>,
    /// The certificates that were shown on the connections that peers without an address have opened.
    shown: BTreeMap<NodeId, Option<String>>,
    peer_penalty: PeerPenalty,
    closed: bool,
}

impl Peers {
    fn is_certificate_of(&self, peer: NodeId, shown: Option<&str>) -> bool {
        let known = self.certificates.get(&peer);
        known.is_none_or(|known| shown == Some(known))
    }
}

impl Transport {
    /// Goes on the network. Must be called inside a tokio runtime, whose tasks carry the connections.
    pub fn start(config: TransportConfig, receiver: Arc<dyn Receiver>) -> Transport {
        if !config.looks {
            busy_poll::disable();
        }
        let secret = match &config.security {
            Security::Secret(secret) => Some(secret.clone()),
            Security::Trusting | Security::Certificates(_) => None,
        };
        let inner = Arc::new(Inner {
            identity: Identity {
                cluster: config.cluster,
                me: config.me,
                versions: config.versions,
                secret,
            },
            security: config.security,
            receiver,
            handle: tokio::runtime::Handle::current(),
            dials_all: config.listener.is_none(),
            metrics: Arc::default(),
            peers: Mutex::default(),
        });
        if let Some(listener) = config.listener {
            tokio::spawn(connection::accept_all(Arc::clone(&inner), listener));
        }
        Transport { inner }
    }

    /// Says where a peer can be outgoing socket.
    pub fn learn_address(&self, peer: NodeId, address: SocketAddr) {
        self.inner.peers.lock().addresses.insert(peer, address);
        if self.inner.dials_all {
            self.inner.link(peer);
        }
    }

    /// Says which certificate a peer has. Whoever has shown another in its name loses its connection.
    pub fn learn_certificate(&self, peer: NodeId, certificate: &str) {
        let impostor = {
            let mut peers = self.inner.peers.lock();
            peers.certificates.insert(peer, certificate.to_owned());
            let shown = peers.shown.get(&peer);
            let is_another = shown.is_some_and(|shown| shown.as_deref() != Some(certificate));
            peers.links.get(&peer).filter(|_| is_another).cloned()
        };
        if let Some(link) = impostor {
            tracing::warn!(%peer, "dropped a connection: that peer has another certificate");
            self.inner.break_link(peer, &link);
        }
    }

    /// Forgets a peer that has left, and closes its connections.
    pub fn forget(&self, peer: NodeId) {
        let link = {
            let mut peers = self.inner.peers.lock();
            peers.addresses.remove(&peer);
            peers.peer_penalty.forget(peer);
            peers.certificates.remove(&peer);
            peers.shown.remove(&peer);
            peers.links.remove(&peer)
        };
        if let Some(link) = link {
            link.close();
        }
    }

    /// Puts a frame behind those already sent to the peer, dialling it if need be. It is written as soon as the connection
    /// takes it; whether it arrives shows in the peer's answer, or in [`Receiver::link_down`].
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        // Whoever speaks the protocol says it again when there is a connection; nobody else does.
        let needs_connection = class == Class::Protocol;
        let link = self.inner.link(to);
        link.put(needs_connection, |out| frame::put(out, class, payload))?;
        link.flush(FlushMode::Coalesce);
        Ok(())
    }

    /// The bytes that were sent and received so far, to be compared with an earlier look.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.metrics.received.bytes() + self.inner.metrics.sent.bytes()
    }

    /// What went over the connections with a peer; nothing, if there are none.
    pub fn traffic_with(&self, peer: NodeId) -> LinkTraffic {
        let link = self.inner.peers.lock().links.get(&peer).cloned();
        link.map(|link| link.traffic()).unwrap_or_default()
    }

    /// What is measured of its metrics.
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

    /// Waits until the threads that read connections are done with all that they had begun, or were about to.
    pub async fn caught_up(&self) {
        // Where there are none, nothing is read.
        let Ok(io_threads) = IoThreads::of_process() else {
            return;
        };
        let (done, receive) = oneshot::channel::<()>();
        // It is their last task.
        io_threads.spawn(&self.inner.handle, async { drop(done) });
        let _ = receive.await;
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

impl Inner {
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

    /// The link of a peer that can't be outgoing_socket: it is answered on the connection that it opened just now. None, if it has
    /// turned out meanwhile that the peer has another certificate.
    fn adopt(&self, peer: NodeId, shown: Option<String>) -> Option<Arc<Link>> {
        let link = Link::new(Arc::clone(&self.metrics));
        let older = {
            let mut peers = self.peers.lock();
            if !peers.is_certificate_of(peer, shown.as_deref()) {
                return None;
            }
            peers.shown.insert(peer, shown);
            peers.links.insert(peer, Arc::clone(&link))
        };
        if let Some(older) = older {
            older.close();
            self.receiver.link_down(peer);
        }
        Some(link)
    }

    /// Whether a certificate, or none, may be a peer's, as far as is known.
    fn is_certificate_of(&self, peer: NodeId, shown: Option<&str>) -> bool {
        self.peers.lock().is_certificate_of(peer, shown)
    }

    fn has_address(&self, peer: NodeId) -> bool {
        self.peers.lock().addresses.contains_key(&peer)
    }

    fn is_closed(&self) -> bool {
        self.peers.lock().closed
    }

    /// A peer has talked nonsense.
    fn peer_penalty(&self, peer: NodeId) {
        self.peers.lock().peer_penalty.note(peer, Instant::now());
    }

    /// How long a new connection with a peer is not read, because it has talked nonsense.
    fn pause_before_reading(&self, peer: NodeId) -> Duration {
        self.peers.lock().peer_penalty.pause(peer, Instant::now())
    }

    /// Ends the pair's connections and says so, once for each link.
    fn break_link(self: &Arc<Self>, peer: NodeId, link: &Arc<Link>) {
        let current = {
            let mut peers = self.peers.lock();
            let current = peers.links.get(&peer).is_some_and(|other| Arc::ptr_eq(other, link));
            if current {
                peers.links.remove(&peer);
                peers.shown.remove(&peer);
            }
            current && !peers.closed
        };
        link.close();
        if current {
            self.receiver.link_down(peer);
            if self.dials_all {
                self.handle.spawn(dial_again(Arc::clone(self), peer));
            }
        }
    }
}

/// Opens a link anew, unless the peer has gone meanwhile.
async fn dial_again(inner: Arc<Inner>, peer: NodeId) {
    tokio::time::sleep(DIAL_AGAIN_AFTER).await;
    if inner.has_address(peer) && !inner.is_closed() {
        inner.link(peer);
    }
}

#[cfg(test)]
mod tests;

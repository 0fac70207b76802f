//! Connections to peers: frames in order on each, coalesced writes, a bound on what may wait.
//!
//! A node dials each peer that it sends to and that has an address; a peer without one (a client) is answered on the
//! connection that it opened, and therefore keeps one open to every peer that it knows. The two connections of a pair stand and fall together: when either breaks, both are
//! closed and the [`Receiver`] hears of it once, so that frames in doubt are in doubt for both directions.
//!
//! While a connection is being opened, protocol frames are dropped, because their sender transmits them again when it
//! hears that the link is up; control and admin frames wait.
//!
//! Nothing here decides anything: who is a peer and what a frame means is other people's business.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use elastin_types::NodeId;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::frame::{self, Class};
use crate::handshake::{self, Identity};

/// What may wait to be written to one peer. A peer that is this far behind is treated as overloaded.
pub const LINK_BYTES_MAX: usize = 64 << 20;

/// How long a dialled peer may take to answer the handshake, so that a dead address does not hold frames for ever.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a node that dials everybody waits before it dials a lost peer again.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How much is read at once; large enough that one system call carries many small frames.
const READ_BYTES: usize = 64 << 10;

/// What the transport tells its owner. Called from the tasks that read connections: it must not block.
pub trait Receiver: Send + Sync + 'static {
    /// A frame from a peer. Frames of one connection come in the order in which they were sent.
    fn frame(&self, from: NodeId, class: Class, payload: Bytes);

    /// There is a connection to a peer: frames sent from now on go over it.
    fn link_up(&self, peer: NodeId);

    /// The connections with a peer broke: what was sent and not answered may or may not have arrived.
    fn link_down(&self, peer: NodeId);
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

struct Inner {
    identity: Identity,
    receiver: Arc<dyn Receiver>,
    handle: tokio::runtime::Handle,
    // Nobody can dial this node, so it dials everybody.
    dials_all: bool,
    // Counted here because every byte passes here; the sum is all that policies ask for.
    traffic_bytes: AtomicU64,
    // One lock for addresses and links: taken once per frame sent, never while one is written.
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    addresses: HashMap<NodeId, SocketAddr>,
    links: HashMap<NodeId, Arc<Link>>,
    closed: bool,
}

/// One peer's outgoing frames, and the switch that closes its connections.
struct Link {
    outgoing: Mutex<Outgoing>,
    filled: Notify,
    close: watch::Sender<bool>,
}

#[derive(Default)]
struct Outgoing {
    open: bool,
    bytes: BytesMut,
}

impl Link {
    fn new() -> Arc<Link> {
        Arc::new(Link {
            outgoing: Mutex::default(),
            filled: Notify::new(),
            close: watch::Sender::new(false),
        })
    }

    fn push(&self, class: Class, payload: &[u8]) -> Result<(), SendError> {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.open && class == Class::Protocol {
            return Ok(());
        }
        if outgoing.bytes.len() + payload.len() > LINK_BYTES_MAX {
            return Err(SendError::Backlogged);
        }
        let was_empty = outgoing.bytes.is_empty();
        frame::put(&mut outgoing.bytes, class, payload).map_err(|_| SendError::TooLarge)?;
        drop(outgoing);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    fn open(&self) {
        self.outgoing.lock().open = true;
    }

    async fn closed(&self) {
        // The sender lives in `self`, so waiting can't fail.
        let _ = self.close.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Transport {
    /// A transport for the node `me` of a cluster; it accepts connections on `listener`, if the node can be dialled.
    /// Must be called inside a tokio runtime, whose tasks carry the connections.
    pub fn start(cluster: &str, me: NodeId, listener: Option<TcpListener>, receiver: Arc<dyn Receiver>) -> Transport {
        let inner = Arc::new(Inner {
            identity: Identity {
                cluster: cluster.into(),
                me,
            },
            receiver,
            handle: tokio::runtime::Handle::current(),
            dials_all: listener.is_none(),
            traffic_bytes: AtomicU64::new(0),
            peers: Mutex::default(),
        });
        if let Some(listener) = listener {
            tokio::spawn(accept_all(Arc::clone(&inner), listener));
        }
        Transport { inner }
    }

    /// Says where a peer can be dialled.
    pub fn learn_address(&self, peer: NodeId, address: SocketAddr) {
        self.inner.peers.lock().addresses.insert(peer, address);
        if self.inner.dials_all {
            self.inner.link(peer);
        }
    }

    /// Forgets a peer that has left, and closes its connections.
    pub fn forget(&self, peer: NodeId) {
        let link = {
            let mut peers = self.inner.peers.lock();
            peers.addresses.remove(&peer);
            peers.links.remove(&peer)
        };
        if let Some(link) = link {
            link.close.send_replace(true);
        }
    }

    /// Puts a frame behind those already sent to the peer, dialling it if need be. It is written as soon as the connection takes it; whether
    /// it arrives shows in the peer's answer, or in [`Receiver::link_down`].
    pub fn send(&self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        self.inner
            .traffic_bytes
            .fetch_add(payload.len() as u64, Ordering::Relaxed);
        self.inner.link(to).push(class, payload)
    }

    /// The bytes that were sent and received so far, to be compared with an earlier look.
    pub fn traffic_bytes(&self) -> u64 {
        self.inner.traffic_bytes.load(Ordering::Relaxed)
    }

    /// Closes every connection and opens no more.
    pub fn close(&self) {
        let links = {
            let mut peers = self.inner.peers.lock();
            peers.closed = true;
            std::mem::take(&mut peers.links)
        };
        for link in links.into_values() {
            link.close.send_replace(true);
        }
    }
}

impl Inner {
    fn link(self: &Arc<Self>, to: NodeId) -> Arc<Link> {
        let mut peers = self.peers.lock();
        if let Some(link) = peers.links.get(&to) {
            return Arc::clone(link);
        }
        let link = Link::new();
        let address = peers.addresses.get(&to).copied().filter(|_| !peers.closed);
        peers.links.insert(to, Arc::clone(&link));
        self.handle
            .spawn(dial(Arc::clone(self), to, address, Arc::clone(&link)));
        link
    }

    /// The link of a peer that can't be dialled: it is answered on the connection that it opened just now.
    fn adopt(&self, peer: NodeId) -> Arc<Link> {
        let link = Link::new();
        let older = self.peers.lock().links.insert(peer, Arc::clone(&link));
        if let Some(older) = older {
            older.close.send_replace(true);
            self.receiver.link_down(peer);
        }
        link
    }

    /// Ends the pair's connections and says so, once for each link.
    fn break_link(self: &Arc<Self>, peer: NodeId, link: &Arc<Link>) {
        let current = {
            let mut peers = self.peers.lock();
            let current = peers.links.get(&peer).is_some_and(|other| Arc::ptr_eq(other, link));
            if current {
                peers.links.remove(&peer);
            }
            current && !peers.closed
        };
        link.close.send_replace(true);
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
    let known = {
        let peers = inner.peers.lock();
        peers.addresses.contains_key(&peer) && !peers.closed
    };
    if known {
        inner.link(peer);
    }
}

async fn dial(inner: Arc<Inner>, peer: NodeId, address: Option<SocketAddr>, link: Arc<Link>) {
    let opened = timeout(CONNECT_TIME_MAX, async {
        let address = address.ok_or_else(|| std::io::Error::other("the peer's address is not known"))?;
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        handshake::dial(&mut stream, &inner.identity, peer).await?;
        Ok::<_, handshake::HandshakeError>(stream)
    });
    let opened = tokio::select! {
        opened = opened => opened,
        () = link.closed() => return,
    };
    match opened {
        Ok(Ok(stream)) => {
            let (reader, writer) = stream.into_split();
            link.open();
            inner.receiver.link_up(peer);
            let reading = read_frames(Arc::clone(&inner), peer, reader, Arc::clone(&link));
            tokio::join!(reading, write_frames(writer, &link, || inner.break_link(peer, &link)));
        }
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

async fn accept_all(inner: Arc<Inner>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if inner.peers.lock().closed {
                    return;
                }
                tokio::spawn(accept(Arc::clone(&inner), stream));
            }
            Err(error) => {
                // Out of file descriptors, for instance: what is open goes on, new peers wait.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn accept(inner: Arc<Inner>, mut stream: TcpStream) {
    let greeted = timeout(CONNECT_TIME_MAX, async {
        stream.set_nodelay(true)?;
        handshake::accept(&mut stream, &inner.identity).await
    });
    let peer = match greeted.await {
        Ok(Ok(peer)) => peer,
        Ok(Err(error)) => return tracing::warn!(%error, "refused a connection"),
        Err(_) => return tracing::warn!("a connection said nothing"),
    };
    let (reader, writer) = stream.into_split();
    let answers_here = !inner.peers.lock().addresses.contains_key(&peer);
    let link = if answers_here {
        inner.adopt(peer)
    } else {
        inner.link(peer)
    };
    let reading = read_frames(Arc::clone(&inner), peer, reader, Arc::clone(&link));
    if answers_here {
        link.open();
        inner.receiver.link_up(peer);
        tokio::join!(reading, write_frames(writer, &link, || inner.break_link(peer, &link)));
    } else {
        reading.await;
        // Keeps the other direction open until this one ends: a half-closed stream would look broken to the peer.
        drop(writer);
    }
}

async fn read_frames(inner: Arc<Inner>, peer: NodeId, mut reader: OwnedReadHalf, link: Arc<Link>) {
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let ended = async {
        loop {
            match frame::take(&mut input) {
                Ok(Some((class, payload))) => {
                    inner.traffic_bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                    inner.receiver.frame(peer, class, payload);
                    continue;
                }
                Ok(None) => {}
                Err(error) => return tracing::warn!(%peer, %error, "dropped a connection"),
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
        () = ended => inner.break_link(peer, &link),
        () = link.closed() => {}
    }
}

async fn write_frames(mut writer: OwnedWriteHalf, link: &Link, broken: impl Fn()) {
    let mut batch = BytesMut::new();
    loop {
        std::mem::swap(&mut batch, &mut link.outgoing.lock().bytes);
        if batch.is_empty() {
            tokio::select! {
                () = link.filled.notified() => continue,
                () = link.closed() => return,
            }
        }
        let written = tokio::select! {
            written = writer.write_all(&batch) => written,
            () = link.closed() => return,
        };
        if let Err(error) = written {
            tracing::debug!(%error, "a connection broke");
            return broken();
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[derive(Debug, PartialEq)]
    enum Heard {
        Frame(NodeId, Bytes),
        Up(NodeId),
        Down(NodeId),
    }

    struct Ear(mpsc::UnboundedSender<Heard>);

    impl Receiver for Ear {
        fn frame(&self, from: NodeId, _: Class, payload: Bytes) {
            let _ = self.0.send(Heard::Frame(from, payload));
        }

        fn link_up(&self, peer: NodeId) {
            let _ = self.0.send(Heard::Up(peer));
        }

        fn link_down(&self, peer: NodeId) {
            let _ = self.0.send(Heard::Down(peer));
        }
    }

    struct Node {
        transport: Transport,
        heard: mpsc::UnboundedReceiver<Heard>,
        address: Option<SocketAddr>,
    }

    impl Node {
        async fn start(id: u64, dialable: bool) -> Node {
            let (ear, heard) = mpsc::unbounded_channel();
            let listener = match dialable {
                true => Some(TcpListener::bind("127.0.0.1:0").await.unwrap()),
                false => None,
            };
            let address = listener.as_ref().map(|listener| listener.local_addr().unwrap());
            let transport = Transport::start("test", NodeId(id), listener, Arc::new(Ear(ear)));
            Node {
                transport,
                heard,
                address,
            }
        }

        async fn hears(&mut self, expected: Heard) {
            let heard = timeout(Duration::from_secs(10), self.heard.recv()).await;
            assert_eq!(heard.ok().flatten(), Some(expected));
        }

        fn sends(&self, to: u64, text: &str) {
            self.transport
                .send(NodeId(to), Class::Protocol, text.as_bytes())
                .unwrap();
        }

        /// Opens a connection by a frame that is dropped, and waits until it is there.
        async fn connects(&mut self, to: &mut Node, id: u64, own_id: u64) {
            self.sends(id, "dropped");
            self.hears(Heard::Up(NodeId(id))).await;
            to.hears(Heard::Up(NodeId(own_id))).await;
        }
    }

    async fn pair() -> (Node, Node) {
        let (mut near, mut far) = (Node::start(1, true).await, Node::start(2, true).await);
        near.transport.learn_address(NodeId(2), far.address.unwrap());
        far.transport.learn_address(NodeId(1), near.address.unwrap());
        near.connects(&mut far, 2, 1).await;
        (near, far)
    }

    fn frame_from(id: u64, text: &str) -> Heard {
        Heard::Frame(NodeId(id), Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn frames_arrive_in_order_both_ways() {
        let (mut near, mut far) = pair().await;
        for number in 0..1000 {
            near.sends(2, &number.to_string());
            far.sends(1, &number.to_string());
        }
        for number in 0..1000 {
            near.hears(frame_from(2, &number.to_string())).await;
            far.hears(frame_from(1, &number.to_string())).await;
        }
    }

    #[tokio::test]
    async fn a_client_is_answered_on_its_own_connection() {
        let (mut client, mut node) = (Node::start(1, false).await, Node::start(2, true).await);
        client.transport.learn_address(NodeId(2), node.address.unwrap());
        client.hears(Heard::Up(NodeId(2))).await;
        node.hears(Heard::Up(NodeId(1))).await;
        client.sends(2, "ask");
        node.hears(frame_from(1, "ask")).await;
        node.sends(1, "answer");
        client.hears(frame_from(2, "answer")).await;
        client.transport.close();
        node.hears(Heard::Down(NodeId(1))).await;
    }

    #[tokio::test]
    async fn a_peer_that_is_not_there_is_reported_and_can_come_back() {
        let (mut near, mut far) = (Node::start(1, true).await, Node::start(2, true).await);
        near.sends(2, "lost");
        near.hears(Heard::Down(NodeId(2))).await;
        near.transport.learn_address(NodeId(2), far.address.unwrap());
        near.connects(&mut far, 2, 1).await;
        near.sends(2, "arrives");
        far.hears(frame_from(1, "arrives")).await;
    }

    #[tokio::test]
    async fn control_frames_wait_for_the_connection() {
        let (near, mut far) = (Node::start(1, true).await, Node::start(2, true).await);
        near.transport.learn_address(NodeId(2), far.address.unwrap());
        near.transport.send(NodeId(2), Class::Control, b"report").unwrap();
        far.hears(Heard::Up(NodeId(1))).await;
        far.hears(frame_from(1, "report")).await;
    }

    #[tokio::test]
    async fn both_directions_fall_together() {
        let (mut near, far) = pair().await;
        far.transport.close();
        near.hears(Heard::Down(NodeId(2))).await;
    }

    #[tokio::test]
    async fn a_peer_far_behind_is_overloaded() {
        let near = Node::start(1, true).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        near.transport.learn_address(NodeId(2), listener.local_addr().unwrap());
        let payload = vec![0; 1 << 20];
        let refused = (0..100).find_map(|_| near.transport.send(NodeId(2), Class::Control, &payload).err());
        assert_eq!(refused, Some(SendError::Backlogged));
    }
}

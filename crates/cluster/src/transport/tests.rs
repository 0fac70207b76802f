//! Transports that talk over real sockets.

mod certificates;
mod stuck;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::frame::{self, FrameError};
use crate::handshake::WIRE_VERSIONS;
use bytes::Bytes;
use elastin_protocol::Frame;
use elastin_types::Time;

/// What an [`InboundHandler`] can't make sense of.
const MALFORMED: &[u8] = b"malformed";

/// ReplyReader to callers who call again. An [`InboundHandler`] can't make sense of the second either.
const REPLIES: [&[u8]; 2] = [b"replies", b"replies and malformed"];

#[derive(Debug, PartialEq)]
enum Received {
    Frame(NodeId, Bytes),
    Up(NodeId),
    Down(NodeId),
    /// What callers have left is to be sent; whether somebody comes again for more.
    FlushBatch(bool),
}

struct InboundHandler(mpsc::UnboundedSender<Received>);

impl Receiver for InboundHandler {
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, comes_again: Option<&Waker>) -> Option<ReceiveOutcome> {
        let mut following = None;
        while let Some((_, payload)) = frames.next() {
            if let Some(task) = comes_again.filter(|_| REPLIES.contains(&payload)) {
                task.wake_by_ref();
                following = Some(ReceiveOutcome::Calls);
            }
            if [MALFORMED, REPLIES[1]].contains(&payload) {
                frames.refuse(FrameError::Undecodable("on purpose".into()));
            } else {
                let _ = self.0.send(Received::Frame(from, Bytes::copy_from_slice(payload)));
            }
        }
        following
    }

    fn run(&self, _: InlineTask) {}

    fn catch_up(&self) {}

    fn flush_batch(&self, comes_again: bool) -> bool {
        let _ = self.0.send(Received::FlushBatch(comes_again));
        false
    }

    fn link_up(&self, peer: NodeId) {
        let _ = self.0.send(Received::Up(peer));
    }

    fn link_down(&self, peer: NodeId) {
        let _ = self.0.send(Received::Down(peer));
    }
}

struct Node {
    transport: Transport,
    received: mpsc::UnboundedReceiver<Received>,
    address: Option<SocketAddr>,
}

impl Node {
    async fn start(id: u64, dialable: bool) -> Node {
        Self::start_secured(id, dialable, Security::Trusting).await
    }

    async fn start_secured(id: u64, dialable: bool, security: Security) -> Node {
        let (receiver, received) = mpsc::unbounded_channel();
        let listener = match dialable {
            true => Some(TcpListener::bind("127.0.0.1:0").await.unwrap()),
            false => None,
        };
        let address = listener.as_ref().map(|listener| listener.local_addr().unwrap());
        let config = TransportConfig {
            cluster: "test".into(),
            me: NodeId(id),
            security,
            listener,
            busy_poll: true,
            versions: WIRE_VERSIONS,
        };
        let transport = Transport::start(config, Arc::new(InboundHandler(receiver)));
        Node {
            transport,
            received,
            address,
        }
    }

    async fn receives(&mut self, expected: Received) {
        let received = timeout(Duration::from_secs(10), self.received.recv()).await;
        assert_eq!(received.ok().flatten(), Some(expected));
    }

    fn sends(&self, to: u64, text: &str) {
        self.transport
            .send(NodeId(to), Class::Protocol, text.as_bytes())
            .unwrap();
    }

    /// Opens a connection by a frame that is dropped, and waits until it is there.
    async fn connects(&mut self, to: &mut Node, id: u64, own_id: u64) {
        self.sends(id, "dropped");
        self.receives(Received::Up(NodeId(id))).await;
        to.receives(Received::Up(NodeId(own_id))).await;
    }
}

async fn pair() -> (Node, Node) {
    pair_secured(Security::Trusting, Security::Trusting).await
}

async fn pair_secured(one: Security, other: Security) -> (Node, Node) {
    let mut near = Node::start_secured(1, true, one).await;
    let mut far = Node::start_secured(2, true, other).await;
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    far.transport.learn_address(NodeId(1), near.address.unwrap());
    near.connects(&mut far, 2, 1).await;
    (near, far)
}

fn frame_from(id: u64, text: &str) -> Received {
    Received::Frame(NodeId(id), Bytes::copy_from_slice(text.as_bytes()))
}

#[tokio::test]
async fn the_version_of_each_link_is_known() {
    let (near, far) = pair().await;
    for node in [&near, &far] {
        let measures = node.transport.measures();
        assert_eq!((measures.links, measures.wire_version_oldest), (1, WIRE_VERSIONS.1));
    }
    let alone = Node::start(3, true).await;
    assert_eq!(alone.transport.measures().wire_version_oldest, 0);
}

#[tokio::test]
async fn frames_arrive_in_order_both_ways() {
    let (mut near, mut far) = pair().await;
    for number in 0..1000 {
        near.sends(2, &number.to_string());
        far.sends(1, &number.to_string());
    }
    for number in 0..1000 {
        near.receives(frame_from(2, &number.to_string())).await;
        far.receives(frame_from(1, &number.to_string())).await;
    }
}

/// A frame of the protocol, for an [`Outbox`].
fn numbered(number: u64) -> Frame {
    Frame {
        number,
        acknowledged: 0,
        sent_at: Time::ZERO,
        body: None,
    }
}

/// Such a frame, as it is received.
fn numbered_from(id: u64, number: u64) -> Received {
    Received::Frame(NodeId(id), postcard::to_stdvec(&numbered(number)).unwrap().into())
}

#[tokio::test]
async fn what_is_put_into_an_outbox_leaves_together_and_in_order() {
    let (near, mut far) = pair().await;
    let batches_before = near.transport.measures().sent.batches;
    let mut outbox = Outbox::default();
    for number in 0..100 {
        outbox.put(&near.transport, NodeId(2), &numbered(number)).unwrap();
    }
    outbox.flush(FlushMode::Coalesce);
    for number in 0..100 {
        far.receives(numbered_from(1, number)).await;
    }
    let batches = near.transport.measures().sent.batches - batches_before;
    assert!((1..=2).contains(&batches), "{batches} writes");
}

#[tokio::test]
async fn what_a_lone_caller_waits_for_leaves_at_once_however_often_it_calls() {
    let (near, mut far) = pair().await;
    let batches_before = near.transport.measures().sent.batches;
    let mut outbox = Outbox::default();
    for number in 0..10 {
        outbox.put(&near.transport, NodeId(2), &numbered(number)).unwrap();
        outbox.flush(FlushMode::NowAwaited);
    }
    assert_eq!(near.transport.measures().sent.batches - batches_before, 10);
    for number in 0..10 {
        far.receives(numbered_from(1, number)).await;
    }
}

#[tokio::test]
async fn an_outbox_keeps_the_frames_of_several_peers_together() {
    let (mut near, mut far) = pair().await;
    let mut third = Node::start(3, true).await;
    third.transport.learn_address(NodeId(1), near.address.unwrap());
    near.transport.learn_address(NodeId(3), third.address.unwrap());
    near.connects(&mut third, 3, 1).await;
    let batches_before = near.transport.measures().sent.batches;
    let mut outbox = Outbox::default();
    for number in 0..30 {
        for peer in [2, 3] {
            outbox.put(&near.transport, NodeId(peer), &numbered(number)).unwrap();
        }
    }
    outbox.flush(FlushMode::Now);
    for number in 0..30 {
        far.receives(numbered_from(1, number)).await;
        third.receives(numbered_from(1, number)).await;
    }
    let batches = near.transport.measures().sent.batches - batches_before;
    assert_eq!(batches, 2, "one write for each");
}

#[tokio::test]
async fn an_outbox_goes_on_with_the_link_that_follows_a_broken_one() {
    let (mut near, far) = pair().await;
    let mut outbox = Outbox::default();
    outbox.put(&near.transport, NodeId(2), &numbered(1)).unwrap();
    far.transport.close();
    near.receives(Received::Down(NodeId(2))).await;
    let mut again = Node::start(2, true).await;
    again.transport.learn_address(NodeId(1), near.address.unwrap());
    near.transport.learn_address(NodeId(2), again.address.unwrap());
    // There is no connection yet: it is dropped, and one is opened.
    outbox.put(&near.transport, NodeId(2), &numbered(2)).unwrap();
    near.receives(Received::Up(NodeId(2))).await;
    again.receives(Received::Up(NodeId(1))).await;
    outbox.put(&near.transport, NodeId(2), &numbered(3)).unwrap();
    outbox.flush(FlushMode::Coalesce);
    again.receives(numbered_from(1, 3)).await;
}

#[tokio::test]
async fn batched_calls_are_sent_however_the_reader_ends() {
    let mut client = Node::start(1, false).await;
    let mut server = Node::start(2, true).await;
    client.transport.learn_address(NodeId(2), server.address.unwrap());
    client.receives(Received::Up(NodeId(2))).await;
    server.receives(Received::Up(NodeId(1))).await;
    let replies = REPLIES.map(|replies| str::from_utf8(replies).unwrap());
    server.sends(1, replies[0]);
    client.receives(frame_from(2, replies[0])).await;
    client.receives(Received::FlushBatch(true)).await;
    client.receives(Received::FlushBatch(false)).await;
    server.sends(1, replies[1]);
    client.receives(Received::FlushBatch(false)).await;
    client.receives(Received::Down(NodeId(2))).await;
}

#[tokio::test]
async fn what_goes_through_the_stages_is_counted() {
    let (mut near, mut far) = pair().await;
    for number in 1000..2000 {
        near.sends(2, &number.to_string());
    }
    for number in 1000..2000 {
        far.receives(frame_from(1, &number.to_string())).await;
    }
    // What comes later is in a batch of its own, so the batches before it have been counted when it is received.
    near.sends(2, "last");
    far.receives(frame_from(1, "last")).await;
    far.sends(1, "back");
    near.receives(frame_from(2, "back")).await;
    let frame_bytes = frame::length_with(b"1000") as u64;
    for stage in [near.transport.measures().sent, far.transport.measures().received] {
        assert!((1000..=1001).contains(&stage.frames), "{stage:?}");
        assert_eq!(stage.bytes, stage.frames * frame_bytes, "{stage:?}");
        assert!(
            stage.batches <= stage.frames && stage.time > Duration::ZERO,
            "{stage:?}"
        );
    }
    assert_eq!(near.transport.measures().queued_bytes, 0);
    assert_eq!(near.transport.measures().links, 1);
}

#[tokio::test]
async fn a_client_is_answered_on_its_own_connection() {
    let (mut client, mut node) = (Node::start(1, false).await, Node::start(2, true).await);
    client.transport.learn_address(NodeId(2), node.address.unwrap());
    client.receives(Received::Up(NodeId(2))).await;
    node.receives(Received::Up(NodeId(1))).await;
    client.sends(2, "ask");
    node.receives(frame_from(1, "ask")).await;
    node.sends(1, "answer");
    client.receives(frame_from(2, "answer")).await;
    client.transport.close();
    node.receives(Received::Down(NodeId(1))).await;
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_reported_and_can_come_back() {
    let (mut near, mut far) = (Node::start(1, true).await, Node::start(2, true).await);
    near.sends(2, "lost");
    near.receives(Received::Down(NodeId(2))).await;
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    near.connects(&mut far, 2, 1).await;
    near.sends(2, "arrives");
    far.receives(frame_from(1, "arrives")).await;
}

#[tokio::test]
async fn control_frames_wait_for_the_connection() {
    let (near, mut far) = (Node::start(1, true).await, Node::start(2, true).await);
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    near.transport.send(NodeId(2), Class::Control, b"report").unwrap();
    far.receives(Received::Up(NodeId(1))).await;
    far.receives(frame_from(1, "report")).await;
}

#[tokio::test]
async fn both_directions_fall_together() {
    let (mut near, far) = pair().await;
    far.transport.close();
    near.receives(Received::Down(NodeId(2))).await;
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

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let (near, mut far) = pair().await;
    let address = far.address.unwrap();
    let mut wrong = Vec::new();
    frame::put(&mut wrong, Class::Handshake, b"no greeting").unwrap();
    let oversized = u32::MAX.to_le_bytes();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &wrong, &oversized, b""] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = Vec::new();
        // A reset is as good an end as a close.
        let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut said))
            .await
            .expect("it is closed");
        assert_eq!(said, b"");
    }
    near.sends(2, "still there");
    far.receives(frame_from(1, "still there")).await;
}

#[tokio::test]
async fn a_malformed_frame_ends_the_connection_and_delays_the_next() {
    let (mut client, mut node) = (Node::start(1, false).await, Node::start(2, true).await);
    client.transport.learn_address(NodeId(2), node.address.unwrap());
    client.receives(Received::Up(NodeId(2))).await;
    node.receives(Received::Up(NodeId(1))).await;
    let mut pause = peer_penalty::PAUSE_MIN;
    for _ in 0..3 {
        let began = Instant::now();
        for text in ["before", "malformed", "behind"] {
            client.sends(2, text);
        }
        node.receives(frame_from(1, "before")).await;
        node.receives(Received::Down(NodeId(1))).await;
        client.receives(Received::Down(NodeId(2))).await;
        // It dials again by itself.
        client.receives(Received::Up(NodeId(2))).await;
        node.receives(Received::Up(NodeId(1))).await;
        client.sends(2, "again");
        node.receives(frame_from(1, "again")).await;
        assert!(began.elapsed() >= pause, "{:?} is too soon", began.elapsed());
        pause *= 2;
    }
}

//! Transports that talk over real sockets. Each test runs over both implementations, unless it needs one of them.

mod certificates;
mod link_order;
mod stuck;

use bytes::Bytes;
use elastin_protocol::Frame;
use elastin_types::Time;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::frame::{self, FrameError};
use crate::handshake::WIRE_VERSIONS;
use crate::outbox::Outbox;
use crate::tuning::{LINK_BYTES_MAX, PENALTY_PAUSE_MIN};

/// Runs tests over both implementations.
macro_rules! over_both {
    ($($test:ident),+ $(,)?) => {
        mod plain {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Io::Plain).await;
            })+
        }

        mod fast {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Io::Fast).await;
            })+
        }
    };
}
use over_both;

over_both!(
    the_version_of_each_link_is_known,
    frames_arrive_in_order_both_ways,
    frames_in_an_outbox_are_written_together_and_in_order,
    an_outbox_writes_once_to_each_peer,
    an_outbox_uses_the_link_that_follows_a_broken_one,
    frames_are_counted_in_each_stage,
    a_client_is_answered_on_its_own_connection,
    an_unreachable_peer_is_reported_and_can_come_back,
    control_frames_wait_for_the_connection,
    both_directions_break_together,
    a_peer_far_behind_is_overloaded,
    garbage_ends_its_own_connection_only,
    a_malformed_frame_ends_the_connection_and_delays_the_next,
);

/// An implementation of [`ConnectionIo`].
#[derive(Clone, Copy, PartialEq)]
enum Io {
    Plain,
    Fast,
}

/// A payload that an [`InboundHandler`] refuses.
const MALFORMED: &[u8] = b"malformed";

/// Payloads that an [`InboundHandler`] answers with steps. It refuses the second.
const STEPS: [&[u8]; 2] = [b"steps", b"steps and malformed"];

#[derive(Debug, PartialEq)]
enum Received {
    Frame(NodeId, Bytes),
    Up(NodeId),
    Down(NodeId),
    /// A step of the follow-up was taken.
    Step,
    /// The follow-up was dropped.
    StepsEnded,
}

struct InboundHandler(mpsc::UnboundedSender<Received>);

impl Receiver for InboundHandler {
    fn frames(&self, from: NodeId, frames: &mut Frames<'_>, task: Option<&Waker>) -> Option<FollowUp> {
        let mut follow_up = None;
        while let Some((_, payload)) = frames.next() {
            if task.is_some() && STEPS.contains(&payload) {
                follow_up = Some(FollowUp::Steps(Box::new(OneStep(self.0.clone(), false))));
            }
            if [MALFORMED, STEPS[1]].contains(&payload) {
                frames.refuse(FrameError::Undecodable("on purpose".into()));
            } else {
                let _ = self.0.send(Received::Frame(from, Bytes::copy_from_slice(payload)));
            }
        }
        follow_up
    }

    fn follow_up_is_late(&self) {}

    fn link_up(&self, peer: NodeId) {
        let _ = self.0.send(Received::Up(peer));
    }

    fn link_down(&self, peer: NodeId) {
        let _ = self.0.send(Received::Down(peer));
    }
}

/// Yields once, and takes one step.
struct OneStep(mpsc::UnboundedSender<Received>, bool);

impl Steps for OneStep {
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if !std::mem::replace(&mut self.1, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let _ = self.0.send(Received::Step);
        Poll::Ready(false)
    }
}

impl Drop for OneStep {
    fn drop(&mut self) {
        let _ = self.0.send(Received::StepsEnded);
    }
}

struct Node {
    transport: Transport,
    received: mpsc::UnboundedReceiver<Received>,
    address: Option<SocketAddr>,
}

impl Io {
    async fn node(self, id: u64, dialable: bool) -> Node {
        self.secured_node(id, dialable, Security::Trusting).await
    }

    async fn secured_node(self, id: u64, dialable: bool, security: Security) -> Node {
        let (receiver, received) = mpsc::unbounded_channel();
        let listener = match dialable {
            true => Some(TcpListener::bind("127.0.0.1:0").await.unwrap()),
            false => None,
        };
        let address = listener.as_ref().map(|listener| listener.local_addr().unwrap());
        let config = self.config(id, listener, security);
        let transport = Transport::start(config, Arc::new(InboundHandler(receiver)));
        Node {
            transport,
            received,
            address,
        }
    }

    fn config(self, id: u64, listener: Option<TcpListener>, security: Security) -> TransportConfig {
        TransportConfig {
            cluster: "test".into(),
            me: NodeId(id),
            security,
            listener,
            busy_poll: self == Io::Fast,
            versions: WIRE_VERSIONS,
        }
    }

    async fn pair(self) -> (Node, Node) {
        self.secured_pair(Security::Trusting, Security::Trusting).await
    }

    async fn secured_pair(self, one: Security, other: Security) -> (Node, Node) {
        let mut near = self.secured_node(1, true, one).await;
        let mut far = self.secured_node(2, true, other).await;
        near.transport.learn_address(NodeId(2), far.address.unwrap());
        far.transport.learn_address(NodeId(1), near.address.unwrap());
        near.connects(&mut far, 2, 1).await;
        (near, far)
    }

    /// A client and a node that are connected.
    async fn client_and_node(self) -> (Node, Node) {
        let (mut client, mut node) = (self.node(1, false).await, self.node(2, true).await);
        client.transport.learn_address(NodeId(2), node.address.unwrap());
        client.receives(Received::Up(NodeId(2))).await;
        node.receives(Received::Up(NodeId(1))).await;
        (client, node)
    }
}

impl Node {
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

fn frame_from(id: u64, text: &str) -> Received {
    Received::Frame(NodeId(id), Bytes::copy_from_slice(text.as_bytes()))
}

async fn the_version_of_each_link_is_known(io: Io) {
    let (near, far) = io.pair().await;
    for node in [&near, &far] {
        let measures = node.transport.measures();
        assert_eq!((measures.links, measures.wire_version_oldest), (1, WIRE_VERSIONS.1));
    }
    let alone = io.node(3, true).await;
    assert_eq!(alone.transport.measures().wire_version_oldest, 0);
}

async fn frames_arrive_in_order_both_ways(io: Io) {
    let (mut near, mut far) = io.pair().await;
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

/// The same frame as it is received.
fn numbered_from(id: u64, number: u64) -> Received {
    Received::Frame(NodeId(id), postcard::to_stdvec(&numbered(number)).unwrap().into())
}

async fn frames_in_an_outbox_are_written_together_and_in_order(io: Io) {
    let (near, mut far) = io.pair().await;
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
async fn frames_of_a_lone_caller_are_written_at_once() {
    let (near, mut far) = Io::Fast.pair().await;
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

async fn an_outbox_writes_once_to_each_peer(io: Io) {
    let (mut near, mut far) = io.pair().await;
    let mut third = io.node(3, true).await;
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

async fn an_outbox_uses_the_link_that_follows_a_broken_one(io: Io) {
    let (mut near, far) = io.pair().await;
    let mut outbox = Outbox::default();
    outbox.put(&near.transport, NodeId(2), &numbered(1)).unwrap();
    far.transport.close();
    near.receives(Received::Down(NodeId(2))).await;
    let mut again = io.node(2, true).await;
    again.transport.learn_address(NodeId(1), near.address.unwrap());
    near.transport.learn_address(NodeId(2), again.address.unwrap());
    // Without a connection the frame is dropped, and a connection is opened.
    outbox.put(&near.transport, NodeId(2), &numbered(2)).unwrap();
    near.receives(Received::Up(NodeId(2))).await;
    again.receives(Received::Up(NodeId(1))).await;
    outbox.put(&near.transport, NodeId(2), &numbered(3)).unwrap();
    outbox.flush(FlushMode::Coalesce);
    again.receives(numbered_from(1, 3)).await;
}

#[tokio::test]
async fn steps_are_taken_and_dropped_with_the_connection() {
    let (mut client, server) = Io::Fast.client_and_node().await;
    let steps = STEPS.map(|steps| str::from_utf8(steps).unwrap());
    server.sends(1, steps[0]);
    client.receives(frame_from(2, steps[0])).await;
    client.receives(Received::Step).await;
    client.receives(Received::StepsEnded).await;
    server.sends(1, steps[1]);
    client.receives(Received::StepsEnded).await;
    client.receives(Received::Down(NodeId(2))).await;
}

async fn frames_are_counted_in_each_stage(io: Io) {
    let (mut near, mut far) = io.pair().await;
    for number in 1000..2000 {
        near.sends(2, &number.to_string());
    }
    for number in 1000..2000 {
        far.receives(frame_from(1, &number.to_string())).await;
    }
    // A later frame is in a batch of its own, so the batches before it have been counted when it is received.
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

async fn a_client_is_answered_on_its_own_connection(io: Io) {
    let (mut client, mut node) = io.client_and_node().await;
    client.sends(2, "ask");
    node.receives(frame_from(1, "ask")).await;
    node.sends(1, "answer");
    client.receives(frame_from(2, "answer")).await;
    client.transport.close();
    node.receives(Received::Down(NodeId(1))).await;
}

async fn an_unreachable_peer_is_reported_and_can_come_back(io: Io) {
    let (mut near, mut far) = (io.node(1, true).await, io.node(2, true).await);
    near.sends(2, "lost");
    near.receives(Received::Down(NodeId(2))).await;
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    near.connects(&mut far, 2, 1).await;
    near.sends(2, "arrives");
    far.receives(frame_from(1, "arrives")).await;
}

async fn control_frames_wait_for_the_connection(io: Io) {
    let (near, mut far) = (io.node(1, true).await, io.node(2, true).await);
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    near.transport.send(NodeId(2), Class::Control, b"report").unwrap();
    far.receives(Received::Up(NodeId(1))).await;
    far.receives(frame_from(1, "report")).await;
}

async fn both_directions_break_together(io: Io) {
    let (mut near, far) = io.pair().await;
    far.transport.close();
    near.receives(Received::Down(NodeId(2))).await;
}

async fn a_peer_far_behind_is_overloaded(io: Io) {
    let near = io.node(1, true).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    near.transport.learn_address(NodeId(2), listener.local_addr().unwrap());
    let payload = vec![0; 1 << 20];
    let refused = (0..100).find_map(|_| near.transport.send(NodeId(2), Class::Control, &payload).err());
    assert_eq!(refused, Some(SendError::Backlogged));
}

async fn garbage_ends_its_own_connection_only(io: Io) {
    let (near, mut far) = io.pair().await;
    let address = far.address.unwrap();
    let mut wrong = Vec::new();
    frame::put(&mut wrong, Class::Handshake, b"no greeting").unwrap();
    let oversized = u32::MAX.to_le_bytes();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &wrong, &oversized, b""] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut received = Vec::new();
        // A reset counts as a close.
        let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut received))
            .await
            .expect("it is closed");
        assert_eq!(received, b"");
    }
    near.sends(2, "still there");
    far.receives(frame_from(1, "still there")).await;
}

async fn a_malformed_frame_ends_the_connection_and_delays_the_next(io: Io) {
    let (mut client, mut node) = io.client_and_node().await;
    let mut pause = PENALTY_PAUSE_MIN;
    for _ in 0..3 {
        let began = Instant::now();
        for text in ["before", "malformed", "behind"] {
            client.sends(2, text);
        }
        node.receives(frame_from(1, "before")).await;
        node.receives(Received::Down(NodeId(1))).await;
        client.receives(Received::Down(NodeId(2))).await;
        // The client redials by itself.
        client.receives(Received::Up(NodeId(2))).await;
        node.receives(Received::Up(NodeId(1))).await;
        client.sends(2, "again");
        node.receives(frame_from(1, "again")).await;
        assert!(began.elapsed() >= pause, "{:?} is too soon", began.elapsed());
        pause *= 2;
    }
}

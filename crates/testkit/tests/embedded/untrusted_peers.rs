//! Untrusted peers, and members that send malformed frames, do not affect a server. They are refused or disconnected
//! and logged, and calls of others continue on their connections.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use elastin::{Authority, Embedded};
use elastin_cluster::{Certificates, FollowUp, Frames, Receiver, Security, Transport, TransportConfig, WIRE_VERSIONS};
use elastin_protocol::{Body, DirectoryBody, Entry, Frame, MoveBody, MoveStep, Slot};
use elastin_stores::secret::{Nonce, Proof, Secret, Side, nonce};
use elastin_test_servers::{Proxy, free_port};
use elastin_testkit::{Caller, app, wait_for};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallId, Caller as Sender, Header, Message, Method, NodeId, SlotEpoch, Time,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Far longer than the tests take on a slow machine.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The address of the server: no other process uses this loopback address, so a free port stays free.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A node that does not exist.
const NO_NODE: u64 = u64::MAX;
/// The frame classes of these tests.
const HANDSHAKE: u8 = 0;
const PROTOCOL: u8 = 1;

/// A cluster with one server, which members reach through a proxy, and a caller that calls it all the time.
struct Served {
    cluster: Embedded,
    proxy: Proxy,
    server: SocketAddr,
    caller: Caller,
    files: TempDir,
}

impl Served {
    async fn start(encrypted: bool) -> Served {
        let files = tempfile::tempdir().unwrap();
        let server = SocketAddr::from((HOST, free_port()));
        let proxy = Proxy::start(server).unwrap();
        let program = logging_program(&files);
        let mut builder = app().embedded().servers(1).data(files.path()).program(program);
        if encrypted {
            builder = builder.encrypted();
        }
        let (listen, advertise) = (server.to_string(), proxy.address().to_string());
        let arguments = ["node", "--listen", &listen, "--advertise", &advertise];
        let cluster = builder.node_arguments(arguments).start().await.unwrap();
        let caller = Caller::start(cluster.client().await.unwrap());
        caller.await_round().await;
        Served {
            cluster,
            proxy,
            server,
            caller,
            files,
        }
    }

    /// Waits until the server has logged this text.
    async fn logs(&self, text: &str) {
        let log = self.files.path().join("log");
        wait_for(text, || fs::read_to_string(&log).is_ok_and(|log| log.contains(text))).await;
    }

    /// The server's answer to these bytes, until it closes the connection.
    async fn answers(&self, bytes: &[u8]) -> Vec<u8> {
        let untrusted = TcpStream::connect(self.server).await.unwrap();
        end_with(untrusted, bytes).await
    }

    /// A greeting to the server.
    fn greeting(&self, versions: (u16, u16), cluster: &str) -> Greeting {
        Greeting {
            versions,
            cluster: cluster.to_owned(),
            to: self.cluster.servers()[0].node.0,
            nonce: nonce(),
        }
    }

    /// A connection of a peer that has the cluster's secret.
    async fn greeted(&self) -> TcpStream {
        let secret = Secret::read(&self.files.path().join("secret")).unwrap();
        let greeting = self.greeting(WIRE_VERSIONS, app().cluster_name());
        let mut stream = TcpStream::connect(self.server).await.unwrap();
        stream.write_all(&greeting.frame()).await.unwrap();
        let mut length = [0; 4];
        within(stream.read_exact(&mut length)).await.unwrap();
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        within(stream.read_exact(&mut answer)).await.unwrap();
        // A welcome, with a version, a nonce and a proof.
        let (welcome, _, theirs, _): (u8, u16, Nonce, Option<Proof>) = postcard::from_bytes(&answer[1..]).unwrap();
        assert_eq!(welcome, 0);
        let proof = secret.prove(Side::Dialler, &greeting.subject(), &greeting.nonce, &theirs);
        stream.write_all(&frame(HANDSHAKE, &encoded(&proof))).await.unwrap();
        stream
    }

    /// Ends everything: all calls succeeded, and no connection broke.
    async fn end(self, connections: usize) {
        self.caller.end().await;
        assert_eq!(self.proxy.recorded().len(), connections, "a connection was reopened");
        self.cluster.shutdown().await;
    }
}

/// The program of servers, with warnings in a file.
fn logging_program(files: &TempDir) -> std::path::PathBuf {
    let (program, log) = (files.path().join("server"), files.path().join("log"));
    let server = env!("CARGO_BIN_EXE_testkit-server");
    let script = format!("#!/bin/sh\nRUST_LOG=warn exec {server} \"$@\" 2>> {}\n", log.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A node's first frame.
struct Greeting {
    versions: (u16, u16),
    cluster: String,
    to: u64,
    nonce: Nonce,
}

impl Greeting {
    fn frame(&self) -> Vec<u8> {
        let magic = *b"ELASTIN\0";
        let hello = (magic, self.versions, &self.cluster, NO_NODE, self.to, self.nonce);
        frame(HANDSHAKE, &encoded(&hello))
    }

    /// The subject of a proof.
    fn subject(&self) -> Vec<u8> {
        encoded(&(self.versions, &self.cluster, NO_NODE, self.to))
    }
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap()
}

fn frame(class: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32 + 1;
    [&length.to_le_bytes(), &[class][..], payload].concat()
}

async fn within<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, event)
        .await
        .expect("it completes in time")
}

/// Sends these bytes and returns the answer until the connection is closed.
async fn end_with(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    // A reset at any time counts as a close.
    if stream.write_all(bytes).await.is_ok() {
        let _ = stream.shutdown().await;
        let _ = within(stream.read_to_end(&mut received)).await;
    }
    received
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_greeting_is_refused() {
    let served = Served::start(false).await;
    let connections = served.proxy.recorded().len();
    let name = app().cluster_name().to_owned();

    assert_eq!(served.answers(b"GET / HTTP/1.1\r\n\r\n").await, b"");
    served
        .logs("the other side is no node: a handshake message of 542393671 bytes")
        .await;
    assert_eq!(served.answers(&u32::MAX.to_le_bytes()).await, b"");
    served.logs("a handshake message of 4294967295 bytes").await;
    assert_eq!(served.answers(&frame(HANDSHAKE, b"no greeting")).await, b"");
    let greeting = served.greeting(WIRE_VERSIONS, &name).frame();
    assert_eq!(served.answers(&greeting[..greeting.len() - 1]).await, b"");
    served.logs("the connection failed: early eof").await;
    served.caller.await_round().await;

    // Peers that could be nodes get the reason of the refusal.
    let newer = served.greeting((90, 91), &name).frame();
    assert!(!served.answers(&newer).await.is_empty());
    served
        .logs("refused: it supports wire versions 90 to 91, the peer supports")
        .await;
    let astray = served.greeting(WIRE_VERSIONS, "another").frame();
    assert!(!served.answers(&astray).await.is_empty());
    served
        .logs(&format!("refused: the peer belongs to cluster `{name}`"))
        .await;
    served.end(connections).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_join_is_refused() {
    for (encrypted, refusal) in [
        (false, "it does not have the cluster's secret"),
        (true, "cannot decrypt peer's message"),
    ] {
        let served = Served::start(encrypted).await;
        let received = served.proxy.recorded();
        // All frames of the members so far, including calls, which must not run again.
        for bytes in &received {
            served.answers(bytes).await;
        }
        served.logs(refusal).await;
        served.end(received.len()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_sends_malformed_frames_is_disconnected() {
    let served = Served::start(false).await;
    let connections = served.proxy.recorded().len();

    end_with(served.greeted().await, &u32::MAX.to_le_bytes()).await;
    served.logs("dropped a connection").await;
    served.logs("a frame of 4294967295 bytes is larger than").await;
    end_with(served.greeted().await, &frame(99, b"")).await;
    served.logs("a frame of unknown class 99").await;
    served.caller.await_round().await;

    // This peer disconnects in the middle of a frame.
    let truncated = frame(PROTOCOL, &[0; 100]);
    end_with(served.greeted().await, &truncated[..50]).await;
    end_with(served.greeted().await, &frame(PROTOCOL, &[0xff; 100])).await;
    served.logs("a frame that can't be decoded").await;
    served.end(connections).await;
}

/// The epoch of an activation that does not exist.
const NEVER: ActivationEpoch = ActivationEpoch {
    slot: SlotEpoch(u32::MAX),
    counter: u32::MAX,
};

fn unknown_actor() -> ActorId {
    ActorId::new(ActorType::of("Unknown"), 1)
}

fn call(origin: NodeId) -> CallId {
    CallId { origin, sequence: 1 }
}

/// A call to an actor of an unknown type.
fn message(origin: NodeId) -> Arc<Message> {
    Arc::new(Message {
        target: unknown_actor(),
        header: Header::of_call(call(origin), Sender::Client(origin)),
        method: Method::of("unknown"),
        body: bytes::Bytes::from_static(&[0xff; 100]),
    })
}

/// Well-formed frames that a client may not send, or that refer to unknown actors and calls.
fn unexpected_bodies(server: NodeId) -> Vec<Body> {
    let (actor, epoch) = (unknown_actor(), NEVER);
    let step = |step: MoveStep| {
        Body::Move(MoveBody {
            actor: unknown_actor(),
            epoch,
            attempt: u32::MAX,
            step,
        })
    };
    let slots: Vec<(Slot, SlotEpoch)> = Slot::all().map(|slot| (slot, NEVER.slot)).collect();
    let entries = vec![Entry {
        actor: actor.clone(),
        node: NodeId(NO_NODE),
        epoch,
        attempts_void: u32::MAX,
    }];
    vec![
        Body::Directory(DirectoryBody::HandOver {
            slots: slots.clone(),
            entries: entries.clone(),
            last: Some(true),
        }),
        Body::Directory(DirectoryBody::Recover { slots: slots.clone() }),
        Body::Directory(DirectoryBody::Recovered { entries, done: slots }),
        Body::Directory(DirectoryBody::Grant {
            actor: actor.clone(),
            epoch,
        }),
        Body::Directory(DirectoryBody::Abort {
            actor,
            epoch,
            attempt: u32::MAX,
        }),
        step(MoveStep::Offer),
        step(MoveStep::Accept),
        step(MoveStep::Cancel),
        step(MoveStep::Settled),
        Body::Leaving,
        Body::Parted,
        // A reply to a call that the server never made, and calls with a forged origin.
        Body::Reply {
            call: call(server),
            outcome: Ok(bytes::Bytes::new()),
        },
        Body::Message {
            message: message(server),
            epoch: None,
        },
        Body::Passed {
            message: message(server),
            epoch,
        },
        // A permitted frame: a call to an actor that does not exist.
        Body::Message {
            message: message(NodeId(NO_NODE)),
            epoch: Some(epoch),
        },
        Body::Message {
            message: message(NodeId(NO_NODE)),
            epoch: None,
        },
        Body::Ping,
    ]
}

/// An encoded frame of the protocol.
fn encoded_frame(number: u64, acknowledged: u64, body: Option<Body>) -> Vec<u8> {
    let protocol_frame = Frame {
        number,
        acknowledged,
        sent_at: Time::ZERO,
        body,
    };
    frame(PROTOCOL, &encoded(&protocol_frame))
}

/// The frame numbers; the bodies do not matter.
#[derive(Deserialize)]
struct Numbers {
    _number: u64,
    acknowledged: u64,
}

/// Waits until the server has acknowledged `count` frames.
async fn acknowledges(stream: &mut TcpStream, count: u64) {
    loop {
        let mut length = [0; 4];
        within(stream.read_exact(&mut length)).await.unwrap();
        let mut received = vec![0; u32::from_le_bytes(length) as usize];
        within(stream.read_exact(&mut received)).await.unwrap();
        let numbers: Numbers = postcard::from_bytes(&received[1..]).unwrap();
        if received[0] == PROTOCOL && numbers.acknowledged == count {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_a_role_does_not_permit_are_ignored() {
    let served = Served::start(false).await;
    let connections = served.proxy.recorded().len();
    let server = served.cluster.servers()[0].node;
    let mut stream = served.greeted().await;

    // Invalid numbers: frames far ahead, and acknowledgements of frames that were never sent.
    for (number, acknowledged) in [(u64::MAX, u64::MAX), (0, u64::MAX), (1 << 40, 7)] {
        for body in [None, Some(Body::Ping)] {
            stream
                .write_all(&encoded_frame(number, acknowledged, body))
                .await
                .unwrap();
        }
    }
    let bodies = unexpected_bodies(server);
    let count = bodies.len() as u64;
    for (number, body) in (1..).zip(bodies) {
        let bytes = encoded_frame(number, u64::MAX, Some(body));
        stream.write_all(&bytes).await.unwrap();
    }
    acknowledges(&mut stream, count).await;
    served.logs("ignoring a server-only frame from a client").await;
    served.caller.await_round().await;

    // An invalid slot: the last slot, with its number changed to one whose encoding is as long.
    let slots = vec![(Slot::new(4095), NEVER.slot)];
    let body = Body::Directory(DirectoryBody::Recover { slots });
    let mut bytes = encoded_frame(count + 1, 0, Some(body));
    let at = bytes.windows(2).position(|pair| pair == [0xff, 0x1f]).unwrap();
    bytes[at + 1] = 0x7f;
    stream.write_all(&bytes).await.unwrap();
    let mut rest = Vec::new();
    // A reset counts as a close.
    let _ = within(stream.read_to_end(&mut rest)).await;
    served.logs("a frame that can't be decoded").await;
    served.end(connections).await;
}

/// Expects that it receives nothing.
struct Alone(Notify);

impl Receiver for Alone {
    fn frames(&self, _: NodeId, frames: &mut Frames<'_>, _: Option<&Waker>) -> Option<FollowUp> {
        assert_eq!(frames.count(), 0, "the server sends nothing to an untrusted peer");
        None
    }

    fn follow_up_is_late(&self) {}

    fn link_up(&self, peer: NodeId) {
        panic!("{peer} has accepted an untrusted peer");
    }

    fn link_down(&self, _: NodeId) {
        self.0.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_authority_is_refused() {
    let served = Served::start(true).await;
    let connections = served.proxy.recorded().len();
    let name = app().cluster_name().to_owned();
    let theirs = tempfile::tempdir().unwrap();
    let authority = Authority::create(&name).unwrap();
    authority.issue("untrusted", true, theirs.path()).unwrap();
    let certificates = Certificates::read(theirs.path(), &name).unwrap();
    let config = TransportConfig {
        busy_poll: true,
        cluster: name,
        me: NodeId(NO_NODE),
        security: Security::Certificates(Arc::new(certificates)),
        listener: None,
        versions: WIRE_VERSIONS,
    };
    let alone = Arc::new(Alone(Notify::new()));
    let untrusted = Transport::start(config, alone.clone());
    untrusted.learn_address(served.cluster.servers()[0].node, served.server);
    // The transport retries by itself.
    for _ in 0..3 {
        within(alone.0.notified()).await;
    }
    served.logs("refused a connection").await;
    untrusted.close();
    served.end(connections).await;
}

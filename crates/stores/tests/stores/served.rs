//! Served stores when the connection, the server or the client misbehaves.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use elastin_protocol::store::{
    Change, Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, HISTORY_CHANGES_MAX,
    KeyState, LeaseId, Revision, StateError, StateReply, StateRequest, StateStore, StoreFailure, WRITES_MAX,
    WatchGuard, WatchSink,
};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_stores::secret::{Secret, Side};
use elastin_stores::served::{ConnectError, ServeError, Server, StoreClient, serve};
use elastin_stores::{CoordinationExt, StateStoreExt};
use elastin_test_servers::Proxy;
use elastin_types::{ActivationEpoch, ActorId, ActorType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::blocking::{LIMIT, Watching};

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn save(key: u64, state: String) -> StateRequest {
    StateRequest::Save {
        actor: actor(key),
        epoch: ActivationEpoch::default(),
        state: state.into(),
    }
}

fn load(key: u64) -> StateRequest {
    StateRequest::Load { actor: actor(key) }
}

fn loaded(state: &'static str) -> Result<StateReply, StateError> {
    Ok(StateReply::Loaded {
        epoch: Some(ActivationEpoch::default()),
        state: Some(state.into()),
    })
}

/// The secret shared by the tests.
pub(crate) fn secret() -> Secret {
    Secret::from_text(&"5e".repeat(32)).unwrap()
}

/// Awaits a future with the timeout of the tests.
async fn in_time<T>(label: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(LIMIT, future).await;
    waited.unwrap_or_else(|_| panic!("timed out waiting for {label}"))
}

/// A state store that answers when the test lets it.
struct Slow {
    requests: Mutex<Sender<(StateRequest, Done<StateReply, StateError>)>>,
}

type Requests = Receiver<(StateRequest, Done<StateReply, StateError>)>;

impl Slow {
    fn new() -> (Arc<Self>, Requests) {
        let (sender, receiver) = mpsc::channel();
        let requests = Mutex::new(sender);
        (Arc::new(Self { requests }), receiver)
    }
}

impl StateStore for Slow {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        self.requests.lock().unwrap().send((request, done)).unwrap();
    }
}

pub(crate) async fn serve_at(address: &str, state: Arc<dyn StateStore>, coordination: Arc<dyn Coordination>) -> Server {
    // A server that was just stopped may hold the address for a moment.
    let began = Instant::now();
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{address}: {error}"),
        }
    };
    serve(listener, state, coordination, secret()).unwrap()
}

async fn serve_memory() -> Server {
    let coordination = Arc::new(MemoryCoordination::start());
    serve_at("127.0.0.1:0", Arc::new(MemoryState::start()), coordination.clone()).await
}

/// Retries until the store answers again, which it does by itself once there is a server.
async fn await_service(client: &StoreClient) {
    let service = async {
        while StateStoreExt::call(client, load(0)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time("the client to reconnect", service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_stay_in_order() {
    let server = serve_memory().await;
    let client = StoreClient::connect(server.address(), &secret()).await.unwrap();
    let saves: Vec<_> = (0..10_000)
        .map(|number| StateStoreExt::call(&client, save(1, format!("{number}"))))
        .collect();
    for save in saves {
        assert_eq!(in_time("a save", save).await, Ok(StateReply::Saved));
    }
    assert_eq!(StateStoreExt::call(&client, load(1)).await, loaded("9999"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_reply_is_interrupted_and_the_client_recovers() {
    let coordination = Arc::new(MemoryCoordination::start());
    let (slow, requests) = Slow::new();
    let server = serve_at("127.0.0.1:0", slow, coordination.clone()).await;
    let address = server.address();
    let client = StoreClient::connect(address, &secret()).await.unwrap();
    let written = StateStoreExt::call(&client, save(1, "in flight".to_owned()));
    let (_, done) = tokio::task::block_in_place(|| requests.recv_timeout(LIMIT)).unwrap();

    drop(server);
    let outcome = in_time("the outcome", written).await;
    let Err(StateError::Failed(failure @ StoreFailure::Interrupted { .. })) = outcome else {
        panic!("a write without a reply ended with {outcome:?}");
    };
    assert!(failure.may_be_applied());
    // The store's late reply is discarded.
    done(Ok(StateReply::Saved));

    let refused = in_time("a refusal", async {
        loop {
            match StateStoreExt::call(&client, load(1)).await {
                Err(StateError::Failed(failure)) if !failure.may_be_applied() => return failure,
                // The first may have been sent before the client noticed.
                Err(_) => tokio::task::yield_now().await,
                Ok(reply) => panic!("no server is running, but the load ended with {reply:?}"),
            }
        }
    })
    .await;
    assert!(matches!(refused, StoreFailure::Unreachable { .. }), "{refused:?}");

    let _server = serve_at(
        &address.to_string(),
        Arc::new(MemoryState::start()),
        coordination.clone(),
    )
    .await;
    await_service(&client).await;
    let saved = StateStoreExt::call(&client, save(1, "again".to_owned())).await;
    assert_eq!(saved, Ok(StateReply::Saved));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_after_a_reconnect() {
    let coordination = Arc::new(MemoryCoordination::start());
    let server = serve_at("127.0.0.1:0", Arc::new(MemoryState::start()), coordination.clone()).await;
    let address = server.address();
    let client = StoreClient::connect(address, &secret()).await.unwrap();
    let watching = Watching::start(&client, "k", Revision(1));
    CoordinationExt::call(&*coordination, Commit::put("k", "1"))
        .await
        .unwrap();
    let next = || tokio::task::block_in_place(|| watching.next()).unwrap();
    assert_eq!(next().revision, Revision(1));

    drop(server);
    CoordinationExt::call(&*coordination, Commit::put("k", "2"))
        .await
        .unwrap();
    CoordinationExt::call(&*coordination, Commit::delete("k"))
        .await
        .unwrap();
    let _server = serve_at(
        &address.to_string(),
        Arc::new(MemoryState::start()),
        coordination.clone(),
    )
    .await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(next().changes.iter().map(Change::revision));
    }
    assert_eq!(seen, [Revision(2), Revision(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_a_compacted_revision_is_rejected() {
    let server = serve_memory().await;
    let client = StoreClient::connect(server.address(), &secret()).await.unwrap();
    let full = |commit: usize| {
        (0..WRITES_MAX).fold(Commit::default(), |commit_so_far, key| {
            commit_so_far.and_put(format!("{key}"), format!("{commit}"), None)
        })
    };
    for number in 0..=HISTORY_CHANGES_MAX / WRITES_MAX {
        in_time("a commit", CoordinationExt::call(&client, full(number)))
            .await
            .unwrap();
    }
    let watching = Watching::start(&client, "", Revision(1));
    let oldest = Revision(2);
    let outcome = tokio::task::block_in_place(|| watching.next());
    assert_eq!(outcome, Err(CoordinationError::Compacted { oldest }));
    let watching = Watching::start(&client, "", oldest);
    assert!(tokio::task::block_in_place(|| watching.next()).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_timeout_closes_the_connection() {
    let coordination = Arc::new(MemoryCoordination::start());
    let (slow, requests) = Slow::new();
    let server = serve_at("127.0.0.1:0", slow, coordination).await;
    let reply_timeout = Duration::from_secs(1);
    let client = StoreClient::connect_with(server.address(), &secret(), reply_timeout)
        .await
        .unwrap();
    let outcome = in_time("the reply timeout", StateStoreExt::call(&client, load(1))).await;
    assert!(
        matches!(&outcome, Err(StateError::Failed(StoreFailure::Interrupted { .. }))),
        "{outcome:?}"
    );
    drop(requests);
    let reply = in_time("another request", CoordinationExt::call(&client, Commit::put("k", "v"))).await;
    let revision = Revision(1);
    assert_eq!(reply, Ok(CoordinationReply::Committed { revision }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_client_ends_requests_in_flight() {
    let coordination = Arc::new(MemoryCoordination::start());
    let (slow, requests) = Slow::new();
    let server = serve_at("127.0.0.1:0", slow, coordination).await;
    let client = StoreClient::connect(server.address(), &secret()).await.unwrap();
    let watching = Watching::start(&client, "", Revision(1));
    let written = StateStoreExt::call(&client, load(1));
    let _request = tokio::task::block_in_place(|| requests.recv_timeout(LIMIT)).unwrap();
    drop(client);
    let outcome = in_time("the outcome", written).await;
    assert!(matches!(
        outcome,
        Err(StateError::Failed(StoreFailure::Interrupted { .. }))
    ));
    let ended = tokio::task::block_in_place(|| watching.next());
    assert_eq!(ended, Err(StoreFailure::Closed.into()));
}

/// Sends bytes on a connection and returns everything the server sends until it closes it.
async fn exchange_on(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    // A reset counts as a close.
    let _ = in_time("the server to close the connection", stream.read_to_end(&mut received)).await;
    received
}

async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    exchange_on(TcpStream::connect(address).await.unwrap(), bytes).await
}

/// A hello of this version, with a nonce of sevens.
fn hello(version: u8) -> Vec<u8> {
    [&b"\x1a\0\0\0elastin\0"[..], &[version, 0], &[7; 16]].concat()
}

/// A length, "prove", a nonce and a proof.
const CHALLENGE_BYTES: usize = 4 + 1 + 16 + 32;

/// A connection whose client has proved that it has this secret.
async fn authenticated(address: SocketAddr, secret: &Secret) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello(2)).await.unwrap();
    let mut challenge = [0; CHALLENGE_BYTES];
    in_time("the challenge", stream.read_exact(&mut challenge))
        .await
        .unwrap();
    let theirs = challenge[5..21].try_into().unwrap();
    let proof = secret.prove(Side::Dialler, b"stores", &[7; 16], &theirs);
    stream.write_all(&[&[32, 0, 0, 0][..], &proof].concat()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_own_connection_only() {
    let server = serve_memory().await;
    let address = server.address();
    let client = StoreClient::connect(address, &secret()).await.unwrap();
    assert_eq!(exchange(address, b"GET / HTTP/1.1\r\n\r\n").await, b"");
    let foreign = [&b"\x1a\0\0\0elastic\0\x02\0"[..], &[7; 16]].concat();
    assert_eq!(exchange(address, &foreign).await, b"");
    for garbage in [&[0xff; 4][..], &[3, 0, 0, 0, 1, 77, 77]] {
        let received = exchange_on(authenticated(address, &secret()).await, garbage).await;
        assert!(received.len() > 4, "the client was welcomed first");
    }
    let saved = in_time("a save", StateStoreExt::call(&client, save(1, "fine".to_owned()))).await;
    assert_eq!(saved, Ok(StateReply::Saved));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_secret_is_refused() {
    let server = serve_memory().await;
    let other = Secret::generate();
    assert_eq!(
        exchange_on(authenticated(server.address(), &other).await, b"").await,
        b""
    );
    let refused = StoreClient::connect(server.address(), &other).await.err();
    assert!(matches!(refused, Some(ConnectError::Secret { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_connection_is_refused() {
    let server = serve_memory().await;
    let proxy = Proxy::start(server.address()).unwrap();
    let client = StoreClient::connect(proxy.address(), &secret()).await.unwrap();
    let join = Commit::put("member", "here").when("member", KeyState::Absent);
    in_time("a commit", CoordinationExt::call(&client, join)).await.unwrap();
    let leave = Commit::delete("member");
    in_time("a commit", CoordinationExt::call(&client, leave))
        .await
        .unwrap();
    let recorded = proxy.recorded();
    assert_eq!(recorded.len(), 1, "only one client connected");

    let answer = exchange(server.address(), &recorded[0]).await;
    assert!(
        answer.len() <= CHALLENGE_BYTES,
        "the replay gets a challenge and nothing else"
    );
    let get = CoordinationRequest::Get { key: "member".into() };
    let found = in_time("a reply", CoordinationExt::call(&client, get)).await;
    assert!(
        matches!(found, Ok(CoordinationReply::Got { entry: None, .. })),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_is_reported_to_both_sides() {
    let server = serve_memory().await;
    // "Other version", 2.
    assert_eq!(exchange(server.address(), &hello(9)).await, b"\x02\0\0\0\x01\x02");

    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap();
    let answering = async {
        let (mut stream, _) = other.accept().await.unwrap();
        stream.write_all(b"\x02\0\0\0\x01\x07").await.unwrap();
        stream
    };
    let secret = secret();
    let (connected, _stream) = in_time("the handshake", async {
        tokio::join!(StoreClient::connect(address, &secret), answering)
    })
    .await;
    assert!(matches!(connected.err(), Some(ConnectError::Version { theirs: 7, .. })));
}

/// Stores that answer with a reply of the wrong kind.
struct Mistaken;

impl StateStore for Mistaken {
    fn submit(&self, _: StateRequest, done: Done<StateReply, StateError>) {
        done(Ok(StateReply::Unlocked));
    }
}

impl Coordination for Mistaken {
    fn submit(&self, _: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        done(Ok(CoordinationReply::Revoked));
    }

    fn watch(&self, _: String, _: Revision, _: WatchSink) -> WatchGuard {
        WatchGuard::new(|| {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_of_the_wrong_kind_interrupts_the_request() {
    let server = serve_at("127.0.0.1:0", Arc::new(Mistaken), Arc::new(Mistaken)).await;
    let client = StoreClient::connect(server.address(), &secret()).await.unwrap();
    let loaded = in_time("a reply", StateStoreExt::call(&client, load(1))).await;
    assert!(
        matches!(&loaded, Err(StateError::Failed(StoreFailure::Interrupted { reason })) if reason.contains("of another kind")),
        "{loaded:?}"
    );
    let committed = in_time("a reply", CoordinationExt::call(&client, Commit::put("k", "v"))).await;
    assert!(
        matches!(
            &committed,
            Err(CoordinationError::Failed(StoreFailure::Interrupted { .. }))
        ),
        "{committed:?}"
    );
    // A reply of the right kind is delivered over the new connection.
    let lease = LeaseId(1);
    let revoked = in_time(
        "a reply",
        CoordinationExt::call(&client, CoordinationRequest::Revoke { lease }),
    )
    .await;
    assert_eq!(revoked, Ok(CoordinationReply::Revoked));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_not_served_to_other_machines() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = serve(
        listener,
        Arc::new(MemoryState::start()),
        Arc::new(MemoryCoordination::start()),
        secret(),
    );
    assert!(matches!(served, Err(ServeError::NotLoopback(_))));
}

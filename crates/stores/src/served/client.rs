//! The client: both traits over one connection, which it restores when it breaks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, Revision, StateError, StateReply,
    StateRequest, StateStore, StoreFailure, WatchGuard, WatchSink,
};
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::client_state::{ClientState, Told, Waiter};
use super::wire::{
    self, Ask, Challenge, FRAME_BYTES_MAX, HELLO_BYTES_MAX, Hello, MAGIC, SUBJECT, ServerFrame, Session, VERSION,
    Welcome,
};
use crate::secret::{Secret, Side, nonce};
use crate::worker::contain;

/// How long connecting and greeting may take: both ends are on one machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait before the second attempt to connect; twice as long before each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest wait between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Frames are gathered into one write up to about this size.
const WRITE_BYTES: usize = 64 << 10;
/// How long a reply may take before the connection counts as broken. Longer than any commit on a disk that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no connection. Nothing was submitted; try again later unless the version or the secret differs.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server speaks another version of the protocol: it is another version of the program.
    #[error("the stores at {address} speak version {theirs} of the protocol, not {VERSION}")]
    Version {
        /// Where.
        address: SocketAddr,
        /// The server's version.
        theirs: u16,
    },
    /// The server has another secret: it belongs to another cluster, or this process does.
    #[error("the stores at {address} have another secret")]
    Secret {
        /// Where.
        address: SocketAddr,
    },
    /// Nobody answers there, or not like a server of stores.
    #[error("no stores can be reached at {address}: {error}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// Stores that another process serves.
///
/// While it has no connection, requests wait for the next attempt to connect; if that fails, they end with
/// [`StoreFailure::Unreachable`]. Those that were sent when the connection broke end with
/// [`StoreFailure::Interrupted`]. Watches go on by themselves. Dropping it ends everything that is under way.
pub struct StoreClient {
    shared: Arc<Shared>,
    connecting: JoinHandle<()>,
}

struct Shared {
    state: Mutex<ClientState>,
    /// There is something to send.
    work: Notify,
    patience: Duration,
}

impl StoreClient {
    /// Connects to the server at this address, which has the same secret. Runs on the current tokio runtime.
    pub async fn connect(address: SocketAddr, secret: &Secret) -> Result<Self, ConnectError> {
        Self::connect_with(address, secret, PATIENCE).await
    }

    /// Connects to the server at this address, and gives a connection up if a reply takes longer than `patience`.
    pub async fn connect_with(address: SocketAddr, secret: &Secret, patience: Duration) -> Result<Self, ConnectError> {
        let server = Server {
            address,
            secret: secret.clone(),
        };
        let (stream, session) = dial(&server, None).await?;
        let shared = Arc::new(Shared {
            state: Mutex::new(ClientState::default()),
            work: Notify::new(),
            patience,
        });
        let connecting = tokio::spawn(stay_connected(shared.clone(), server, stream, session));
        Ok(Self { shared, connecting })
    }

    fn ask(&self, ask: Ask, bytes: usize, waiter: Waiter) {
        let asked = self.shared.state.lock().ask(ask, bytes, waiter);
        match asked {
            Ok(()) => self.shared.work.notify_one(),
            Err((waiter, failure)) => waiter.fail(failure),
        }
    }
}

impl StateStore for StoreClient {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        let bytes = request.payload_bytes();
        let waiter = Waiter::State(done, request.expects());
        self.ask(Ask::State(request), bytes, waiter);
    }
}

impl Coordination for StoreClient {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        let bytes = request.payload_bytes();
        let waiter = Waiter::Coordination(done, request.expects());
        self.ask(Ask::Coordination(request), bytes, waiter);
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        let watched = self.shared.state.lock().watch(prefix, from, sink);
        match watched {
            Ok(id) => {
                self.shared.work.notify_one();
                let shared = Arc::downgrade(&self.shared);
                WatchGuard::new(move || {
                    if let Some(shared) = shared.upgrade() {
                        shared.state.lock().unwatch(id);
                        shared.work.notify_one();
                    }
                })
            }
            Err((mut sink, failure)) => {
                sink(Err(failure.into()));
                WatchGuard::new(|| {})
            }
        }
    }
}

impl Drop for StoreClient {
    fn drop(&mut self) {
        self.connecting.abort();
        let (sinks, sent, waiting) = {
            let mut state = self.shared.state.lock();
            (state.close(), state.take_sent(), state.take_waiting())
        };
        let reason = "the client was closed".to_owned();
        fail_all(sent, &StoreFailure::Interrupted { reason });
        fail_all(waiting, &StoreFailure::Closed);
        for mut sink in sinks {
            contain(|| sink(Err(StoreFailure::Closed.into())));
        }
    }
}

fn fail_all(waiters: Vec<Waiter>, failure: &StoreFailure) {
    for waiter in waiters {
        contain(|| waiter.fail(failure.clone()));
    }
}

/// Where the stores are, and how their server knows us.
struct Server {
    address: SocketAddr,
    secret: Secret,
}

/// Connects and greets.
async fn dial(server: &Server, session: Option<Session>) -> Result<(TcpStream, Session), ConnectError> {
    let address = server.address;
    let greeted = tokio::time::timeout(CONNECT_LIMIT, greet(server, session)).await;
    match greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(Greeted::Welcome(stream, session)) => Ok((stream, session)),
        Ok(Greeted::OtherVersion(theirs)) => Err(ConnectError::Version { address, theirs }),
        Ok(Greeted::OtherSecret) => Err(ConnectError::Secret { address }),
        Err(error) => Err(ConnectError::Unreachable { address, error }),
    }
}

enum Greeted {
    Welcome(TcpStream, Session),
    OtherVersion(u16),
    OtherSecret,
}

async fn greet(server: &Server, session: Option<Session>) -> io::Result<Greeted> {
    let mut stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    let own = nonce();
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        session,
        nonce: own,
    };
    wire::send(&mut stream, &hello).await?;
    let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let challenge = wire::read::<Challenge>(&mut stream, &mut Vec::new(), HELLO_BYTES_MAX).await?;
    let (nonce, proof) = match challenge.ok_or_else(ended)? {
        Challenge::Prove { nonce, proof } => (nonce, proof),
        Challenge::OtherVersion { version } => return Ok(Greeted::OtherVersion(version)),
    };
    if !server.secret.is_proved(&proof, Side::Acceptor, SUBJECT, &own, &nonce) {
        return Ok(Greeted::OtherSecret);
    }
    let proof = server.secret.prove(Side::Dialler, SUBJECT, &own, &nonce);
    wire::send(&mut stream, &proof).await?;
    let welcome = wire::read::<Welcome>(&mut stream, &mut Vec::new(), HELLO_BYTES_MAX).await?;
    let Welcome { session } = welcome.ok_or_else(ended)?;
    Ok(Greeted::Welcome(stream, session))
}

/// Uses one connection after the other, for as long as the client lives.
async fn stay_connected(shared: Arc<Shared>, server: Server, mut stream: TcpStream, mut session: Session) {
    let address = server.address;
    loop {
        let error = use_connection(&shared, stream).await;
        tracing::info!(%address, %error, "the connection to the stores is lost");
        let reason = error.to_string();
        let sent = shared.state.lock().take_sent();
        fail_all(sent, &StoreFailure::Interrupted { reason });
        (stream, session) = reconnect(&shared, &server, session).await;
        shared.state.lock().connected();
    }
}

async fn reconnect(shared: &Shared, server: &Server, session: Session) -> (TcpStream, Session) {
    let mut pause = PAUSE_MIN;
    loop {
        match dial(server, Some(session)).await {
            Ok(connection) => return connection,
            Err(error) => {
                let reason = error.to_string();
                let waiting = shared.state.lock().take_waiting();
                fail_all(waiting, &StoreFailure::Unreachable { reason });
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Sends and receives until the connection breaks; says how.
async fn use_connection(shared: &Shared, stream: TcpStream) -> io::Error {
    let (reader, writer) = stream.into_split();
    let ended = tokio::select! {
        ended = send(shared, writer) => ended,
        ended = receive(shared, reader) => ended,
        () = out_of_patience(shared) => Err(io::Error::new(io::ErrorKind::TimedOut, "a reply took too long")),
    };
    ended.expect_err("none of the three ends well")
}

type Never = std::convert::Infallible;

async fn send(shared: &Shared, mut writer: OwnedWriteHalf) -> io::Result<Never> {
    let mut frames = Vec::new();
    loop {
        gather(shared, &mut frames);
        if frames.is_empty() {
            shared.work.notified().await;
            continue;
        }
        writer.write_all(&frames).await?;
        frames.clear();
        frames.shrink_to(WRITE_BYTES);
    }
}

/// Encodes what waits, up to a good size for a write.
fn gather(shared: &Shared, frames: &mut Vec<u8>) {
    while frames.len() < WRITE_BYTES {
        let next = shared.state.lock().next_to_send(Instant::now());
        let Some(frame) = next else { return };
        if let Err(bytes) = wire::append(frames, &frame)
            && let Some(refuse) = shared.state.lock().refuse(frame.id, bytes)
        {
            contain(refuse);
        }
    }
}

async fn receive(shared: &Shared, reader: OwnedReadHalf) -> io::Result<Never> {
    let mut reader = BufReader::with_capacity(WRITE_BYTES, reader);
    let mut buffer = Vec::new();
    while let Some(ServerFrame { id, answer }) = wire::read(&mut reader, &mut buffer, FRAME_BYTES_MAX).await? {
        buffer.shrink_to(WRITE_BYTES);
        let told = shared.state.lock().answered(id, answer).map_err(io::Error::other)?;
        if let Some((id, sink)) = tell(told)? {
            shared.state.lock().return_sink(id, sink);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Tells an answer to who waits for it. A watch whose sink panics has ended: its sink does not come back.
fn tell(told: Told) -> io::Result<Option<(u64, WatchSink)>> {
    let mut outcome = Ok(None);
    contain(|| outcome = told.tell());
    outcome.map_err(io::Error::other)
}

/// Ends when a reply has taken too long.
async fn out_of_patience(shared: &Shared) {
    loop {
        let waited = shared
            .state
            .lock()
            .oldest_sent()
            .map_or(Duration::ZERO, |sent| sent.elapsed());
        if waited >= shared.patience {
            return;
        }
        tokio::time::sleep(shared.patience - waited).await;
    }
}

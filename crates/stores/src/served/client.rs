//! The client: both storage traits over one connection, with automatic reconnect.

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

use super::client_state::{ClientState, Delivery, Waiter};
use super::wire::{
    self, Ask, Challenge, FRAME_BYTES_MAX, HELLO_BYTES_MAX, Hello, MAGIC, SUBJECT, ServerFrame, Session, VERSION,
    Welcome,
};
use crate::secret::{Secret, Side, nonce};
use crate::worker::contain;

/// The timeout of connecting and the handshake: both ends are on one machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before the second attempt to connect; it doubles with each further one.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(10);
/// The longest delay between attempts to connect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);
/// Frames are coalesced into one write up to about this size.
const WRITE_BYTES: usize = 64 << 10;
/// The timeout of a reply, after which the connection counts as broken. Longer than a commit on any working disk.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why there is no connection. Nothing was submitted; retry later unless the version or the secret differs.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server runs another version of the program.
    #[error("the stores at {address} use version {theirs} of the protocol, not {VERSION}: run the same version")]
    Version {
        /// The server's address.
        address: SocketAddr,
        /// The server's protocol version.
        theirs: u16,
    },
    /// The server has another secret: it belongs to another cluster.
    #[error("the stores at {address} have another secret: they belong to another cluster")]
    Secret {
        /// The server's address.
        address: SocketAddr,
    },
    /// No server answers there, or it is not a server of stores.
    #[error("no stores can be reached at {address}: {error}")]
    Unreachable {
        /// The server's address.
        address: SocketAddr,
        /// The underlying error.
        error: io::Error,
    },
}

/// Client of stores served by another process.
///
/// While disconnected, requests wait for the next attempt to connect; if that fails, they end with
/// [`StoreFailure::Unreachable`]. Requests in flight when the connection breaks end with
/// [`StoreFailure::Interrupted`]. Watches resume by themselves. Dropping the client ends all requests and watches.
pub struct StoreClient {
    shared: Arc<ClientShared>,
    connecting: JoinHandle<()>,
}

struct ClientShared {
    state: Mutex<ClientState>,
    /// Notified when there are frames to send.
    work: Notify,
    reply_timeout: Duration,
}

impl StoreClient {
    /// Connects to a server with the same secret. Runs on the current tokio runtime.
    pub async fn connect(address: SocketAddr, secret: &Secret) -> Result<Self, ConnectError> {
        Self::connect_with(address, secret, REPLY_TIMEOUT).await
    }

    /// Like [`StoreClient::connect`], with another timeout for replies.
    pub async fn connect_with(
        address: SocketAddr,
        secret: &Secret,
        reply_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let server = Server {
            address,
            secret: secret.clone(),
        };
        let (stream, session) = dial(&server, None).await?;
        let shared = Arc::new(ClientShared {
            state: Mutex::new(ClientState::default()),
            work: Notify::new(),
            reply_timeout,
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

/// The address of the stores and the secret shared with their server.
struct Server {
    address: SocketAddr,
    secret: Secret,
}

/// Connects and performs the handshake.
async fn dial(server: &Server, session: Option<Session>) -> Result<(TcpStream, Session), ConnectError> {
    let address = server.address;
    let outcome = tokio::time::timeout(CONNECT_TIMEOUT, handshake(server, session)).await;
    match outcome.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(Handshake::Welcome(stream, session)) => Ok((stream, session)),
        Ok(Handshake::OtherVersion(theirs)) => Err(ConnectError::Version { address, theirs }),
        Ok(Handshake::OtherSecret) => Err(ConnectError::Secret { address }),
        Err(error) => Err(ConnectError::Unreachable { address, error }),
    }
}

enum Handshake {
    Welcome(TcpStream, Session),
    OtherVersion(u16),
    OtherSecret,
}

async fn handshake(server: &Server, session: Option<Session>) -> io::Result<Handshake> {
    let mut stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    let own_nonce = nonce();
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        session,
        nonce: own_nonce,
    };
    wire::send(&mut stream, &hello).await?;
    let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let challenge = wire::read::<Challenge>(&mut stream, &mut Vec::new(), HELLO_BYTES_MAX).await?;
    let (nonce, proof) = match challenge.ok_or_else(ended)? {
        Challenge::Prove { nonce, proof } => (nonce, proof),
        Challenge::OtherVersion { version } => return Ok(Handshake::OtherVersion(version)),
    };
    if !server
        .secret
        .is_proved(&proof, Side::Acceptor, SUBJECT, &own_nonce, &nonce)
    {
        return Ok(Handshake::OtherSecret);
    }
    let proof = server.secret.prove(Side::Dialler, SUBJECT, &own_nonce, &nonce);
    wire::send(&mut stream, &proof).await?;
    let welcome = wire::read::<Welcome>(&mut stream, &mut Vec::new(), HELLO_BYTES_MAX).await?;
    let Welcome { session } = welcome.ok_or_else(ended)?;
    Ok(Handshake::Welcome(stream, session))
}

/// Reconnects for as long as the client lives.
async fn stay_connected(shared: Arc<ClientShared>, server: Server, mut stream: TcpStream, mut session: Session) {
    let address = server.address;
    loop {
        let error = use_connection(&shared, stream).await;
        tracing::info!(%address, %error, "lost the connection to the stores");
        let reason = error.to_string();
        let sent = shared.state.lock().take_sent();
        fail_all(sent, &StoreFailure::Interrupted { reason });
        (stream, session) = reconnect(&shared, &server, session).await;
        shared.state.lock().connected();
    }
}

async fn reconnect(shared: &ClientShared, server: &Server, session: Session) -> (TcpStream, Session) {
    let mut delay = RECONNECT_DELAY_MIN;
    loop {
        match dial(server, Some(session)).await {
            Ok(connection) => return connection,
            Err(error) => {
                let reason = error.to_string();
                let waiting = shared.state.lock().take_waiting();
                fail_all(waiting, &StoreFailure::Unreachable { reason });
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RECONNECT_DELAY_MAX);
    }
}

/// Sends and receives until the connection breaks, and returns the reason.
async fn use_connection(shared: &ClientShared, stream: TcpStream) -> io::Error {
    let (reader, writer) = stream.into_split();
    let ended = tokio::select! {
        ended = send(shared, writer) => ended,
        ended = receive(shared, reader) => ended,
        () = reply_timed_out(shared) => Err(io::Error::new(io::ErrorKind::TimedOut, "a reply timed out")),
    };
    ended.expect_err("all three end with an error")
}

type Never = std::convert::Infallible;

async fn send(shared: &ClientShared, mut writer: OwnedWriteHalf) -> io::Result<Never> {
    let mut frames = Vec::new();
    loop {
        encode_queued(shared, &mut frames);
        if frames.is_empty() {
            shared.work.notified().await;
            continue;
        }
        writer.write_all(&frames).await?;
        frames.clear();
        frames.shrink_to(WRITE_BYTES);
    }
}

/// Encodes queued frames, up to a good size for a write.
fn encode_queued(shared: &ClientShared, frames: &mut Vec<u8>) {
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

async fn receive(shared: &ClientShared, reader: OwnedReadHalf) -> io::Result<Never> {
    let mut reader = BufReader::with_capacity(WRITE_BYTES, reader);
    let mut buffer = Vec::new();
    while let Some(ServerFrame { id, answer }) = wire::read(&mut reader, &mut buffer, FRAME_BYTES_MAX).await? {
        buffer.shrink_to(WRITE_BYTES);
        let delivery = shared.state.lock().answered(id, answer).map_err(io::Error::other)?;
        if let Some((id, sink)) = deliver(delivery)? {
            shared.state.lock().return_sink(id, sink);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Delivers an answer to its waiter. A watch whose sink panics has ended: its sink is not returned.
fn deliver(delivery: Delivery) -> io::Result<Option<(u64, WatchSink)>> {
    let mut outcome = Ok(None);
    contain(|| outcome = delivery.deliver());
    outcome.map_err(io::Error::other)
}

/// Returns when a reply has timed out.
async fn reply_timed_out(shared: &ClientShared) {
    loop {
        let waited = shared
            .state
            .lock()
            .oldest_sent()
            .map_or(Duration::ZERO, |sent| sent.elapsed());
        if waited >= shared.reply_timeout {
            return;
        }
        tokio::time::sleep(shared.reply_timeout - waited).await;
    }
}

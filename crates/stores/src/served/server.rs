//! Accepts and authenticates clients.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elastin_protocol::store::{Coordination, StateStore};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::connection::{self, Gate};
use super::wire::{self, Challenge, HELLO_BYTES_MAX, Hello, MAGIC, SUBJECT, Session, VERSION, Welcome};
use crate::secret::{Proof, Secret, Side, nonce};

/// The most connected clients: the nodes of one machine, and some tools.
const CONNECTIONS_MAX: usize = 1024;
/// The timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after a failed accept, most likely because too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The reason why stores can't be served. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is open to other machines, and the protocol is not encrypted.
    #[error("stores are served on the loopback interface only, not on {0}")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves stores until it is dropped. Requests that were submitted by then still complete.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Server {
    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Serves these stores to all clients with the secret. Runs on the current tokio runtime.
pub fn serve(
    listener: TcpListener,
    state: Arc<dyn StateStore>,
    coordination: Arc<dyn Coordination>,
    secret: Secret,
) -> Result<Server, ServeError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    let stores = Arc::new(Stores {
        state,
        coordination,
        secret,
        incarnation: incarnation(),
        last_session: AtomicU64::new(0),
        sessions: Mutex::new(BTreeMap::new()),
    });
    let accepting = tokio::spawn(accept(listener, stores));
    Ok(Server { address, accepting })
}

/// A number that no earlier server had.
fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The nanoseconds of some centuries fit.
    since.as_nanos() as u64
}

/// State shared by all connections.
pub(crate) struct Stores {
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) coordination: Arc<dyn Coordination>,
    secret: Secret,
    incarnation: u64,
    last_session: AtomicU64,
    /// The current connection of each session that has one.
    sessions: Mutex<BTreeMap<u64, Arc<Gate>>>,
}

impl Stores {
    /// Resumes a session, or starts one. After this returns, nothing of the session's earlier connection is
    /// submitted any more.
    fn enter(&self, wanted: Option<Session>) -> (Session, Arc<Gate>) {
        let session = wanted
            .filter(|session| session.server == self.incarnation)
            .unwrap_or_else(|| Session {
                server: self.incarnation,
                number: self.last_session.fetch_add(1, Ordering::Relaxed) + 1,
            });
        let gate = Arc::new(Gate::default());
        let before = self.sessions.lock().insert(session.number, gate.clone());
        if let Some(before) = before {
            before.close();
        }
        (session, gate)
    }

    /// Removes a connection that has ended, unless another has taken over its session.
    fn leave(&self, session: Session, gate: &Arc<Gate>) {
        gate.close();
        let mut sessions = self.sessions.lock();
        if sessions
            .get(&session.number)
            .is_some_and(|current| Arc::ptr_eq(current, gate))
        {
            sessions.remove(&session.number);
        }
    }
}

async fn accept(listener: TcpListener, stores: Arc<Stores>) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let stores = stores.clone();
                connections.spawn(async move {
                    if let Err(error) = serve_connection(stream, &stores).await {
                        tracing::info!(%peer, %error, "a connection to the stores ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection to the stores");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn serve_connection(mut stream: TcpStream, stores: &Stores) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let outcome = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(&mut stream, stores)).await;
    let Some((session, gate)) = outcome.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
        return Ok(());
    };
    let ended = connection::run(stream, stores, &gate).await;
    stores.leave(session, &gate);
    ended
}

/// Authenticates the client and enters its session. `None` if the client disconnected or has another version.
async fn handshake(stream: &mut TcpStream, stores: &Stores) -> io::Result<Option<(Session, Arc<Gate>)>> {
    let Some(hello) = wire::read::<Hello>(stream, &mut Vec::new(), HELLO_BYTES_MAX).await? else {
        return Ok(None);
    };
    if hello.magic != MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a client of these stores",
        ));
    }
    if hello.version != VERSION {
        wire::send(stream, &Challenge::OtherVersion { version: VERSION }).await?;
        return Ok(None);
    }
    let nonce = nonce();
    let proof = stores.secret.prove(Side::Acceptor, SUBJECT, &hello.nonce, &nonce);
    wire::send(stream, &Challenge::Prove { nonce, proof }).await?;
    let Some(proof) = wire::read::<Proof>(stream, &mut Vec::new(), HELLO_BYTES_MAX).await? else {
        return Ok(None);
    };
    if !stores
        .secret
        .is_proved(&proof, Side::Dialler, SUBJECT, &hello.nonce, &nonce)
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the client does not have the secret",
        ));
    }
    let (session, gate) = stores.enter(hello.session);
    if let Err(error) = wire::send(stream, &Welcome { session }).await {
        stores.leave(session, &gate);
        return Err(error);
    }
    Ok(Some((session, gate)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryCoordination, MemoryState};

    fn stores() -> Stores {
        Stores {
            state: Arc::new(MemoryState::start()),
            coordination: Arc::new(MemoryCoordination::start()),
            secret: Secret::generate(),
            incarnation: 42,
            last_session: AtomicU64::new(0),
            sessions: Mutex::new(BTreeMap::new()),
        }
    }

    #[test]
    fn a_resumed_session_fences_its_old_connection() {
        let stores = stores();
        let (session, old) = stores.enter(None);
        assert!(old.pass(|| ()));
        let (again, new) = stores.enter(Some(session));
        assert_eq!(again, session);
        assert!(!old.pass(|| panic!("the old connection submits")));
        assert!(new.pass(|| ()));
        // The end of the old connection does not affect the new one.
        stores.leave(session, &old);
        let (_, newer) = stores.enter(Some(session));
        assert!(!new.pass(|| panic!("the old connection submits")));
        stores.leave(session, &newer);
        assert!(stores.sessions.lock().is_empty());
    }

    #[test]
    fn a_session_of_an_earlier_server_is_not_resumed() {
        let stores = stores();
        let (first, gate) = stores.enter(None);
        let (server, number) = (first.server - 1, first.number);
        let (second, _) = stores.enter(Some(Session { server, number }));
        assert_ne!(second.number, first.number);
        assert!(gate.pass(|| ()));
    }
}

//! State in a PostgreSQL server.
//!
//! ```text
//!   submit ──► queue (bounded) ──► one task: take all queued ─► one transaction ─► every `done`
//! ```
//!
//! A batch is pipelined from the begin to the commit, so it costs one round trip and one write to the server's disk
//! however many requests it has. Epochs are compared in the statement that writes.

mod layout;
mod opening;
mod session;
mod statements;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StateStore, StoreFailure};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::tls::StoreTls;
use opening::{CONNECT_RETRY_TIME, open, open_with_retries};
use session::{Session, unreachable_because};
use tls::Tls;

/// The most queued requests.
const QUEUE_MAX: usize = 65_536;
/// The most queued bytes of payload: a few states of the largest size.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// The most requests of one transaction: enough to amortize a write to the disk, few enough to bound the latency.
const BATCH_MAX: usize = 512;
/// The size in bytes from which a transaction gets no further requests.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// The delay after a failed connection attempt. Requests fail immediately until then.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
/// The longest name of a schema, as PostgreSQL limits it.
const SCHEMA_NAME_BYTES_MAX: usize = 63;

/// The reason why a PostgreSQL server can't be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The address is not valid.
    #[error("not the address of a PostgreSQL server: {0}")]
    Address(tokio_postgres::Error),
    /// The schema's name is not a plain identifier.
    #[error("`{0}` is not a name for a schema: letters, digits and `_`, not a digit first, at most 63")]
    SchemaName(String),
    /// The address requires TLS, and no certificate authority is configured.
    #[error("the address of the PostgreSQL server requires TLS: configure the authority that signed its certificate")]
    NoAuthority,
    /// The certificates are not valid.
    #[error("the certificates for the PostgreSQL server are not valid: {0}")]
    Certificates(String),
    /// The server was not reached or lacks a requirement; the text has the failed step and the server's own error.
    #[error("the PostgreSQL server can't be used: {0}")]
    Unusable(String),
}

/// State in a PostgreSQL server. Dropping it executes the queued requests, then closes the connection.
pub struct PostgresState {
    queue: mpsc::Sender<QueuedRequest>,
    waiting_bytes: Arc<AtomicUsize>,
}

struct QueuedRequest {
    request: StateRequest,
    done: Done<StateReply, StateError>,
}

impl PostgresState {
    /// Connects to a server, such as `postgres://user:password@host:5432/database`, and creates the tables in a schema
    /// of this name. Must be called inside a tokio runtime, whose tasks do the work.
    ///
    /// With certificates the connection uses TLS, and the server must prove that it is the one that the address names.
    ///
    /// An unreachable server is retried for half a minute.
    pub async fn connect(url: &str, schema: &str, tls: Option<&StoreTls>) -> Result<Self, PostgresError> {
        Self::connect_with(url, schema, tls, CONNECT_RETRY_TIME).await
    }

    /// Like [`PostgresState::connect`], but retries an unreachable server for `retry_time`.
    pub async fn connect_with(
        url: &str,
        schema: &str,
        tls: Option<&StoreTls>,
        retry_time: Duration,
    ) -> Result<Self, PostgresError> {
        let mut config: Config = url.parse().map_err(PostgresError::Address)?;
        let tls = tls.map(Tls::new).transpose().map_err(PostgresError::Certificates)?;
        match tls {
            // Never in plain text, whatever the address says.
            Some(_) => drop(config.ssl_mode(SslMode::Require)),
            None if config.get_ssl_mode() == SslMode::Require => return Err(PostgresError::NoAuthority),
            None => {}
        }
        config
            .application_name("elastin")
            .keepalives_idle(Duration::from_secs(10));
        let is_plain = |name: &str| {
            let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            rest && name.len() <= SCHEMA_NAME_BYTES_MAX && name.starts_with(|first: char| !first.is_ascii_digit())
        };
        if !is_plain(schema) {
            return Err(PostgresError::SchemaName(schema.to_owned()));
        }
        let session = open_with_retries(&config, tls.as_ref(), schema, retry_time)
            .await
            .map_err(|failed| PostgresError::Unusable(failed.to_string()))?;
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            config,
            tls,
            schema: schema.to_owned(),
            session: Some(session),
            retry_at: Instant::now(),
            waiting_bytes: Arc::clone(&waiting_bytes),
        };
        tokio::spawn(worker.run(waiting));
        Ok(Self { queue, waiting_bytes })
    }
}

impl StateStore for PostgresState {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        if let Err(error) = request.check() {
            return done(Err(error));
        }
        let bytes = request.payload_bytes();
        if self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > QUEUE_BYTES_MAX {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return done(Err(StoreFailure::Overloaded.into()));
        }
        let (waiting, failure) = match self.queue.try_send(QueuedRequest { request, done }) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(waiting)) => (waiting, StoreFailure::Overloaded),
            Err(mpsc::error::TrySendError::Closed(waiting)) => (waiting, StoreFailure::Closed),
        };
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        (waiting.done)(Err(failure.into()));
    }
}

/// The task that executes queued requests.
struct Worker {
    config: Config,
    tls: Option<Tls>,
    schema: String,
    /// `None` after the connection broke, until there is a new one.
    session: Option<Session>,
    /// When to connect again, if there is no connection.
    retry_at: Instant,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::Receiver<QueuedRequest>) {
        let mut taken = Vec::with_capacity(BATCH_MAX);
        while queue.recv_many(&mut taken, BATCH_MAX).await > 0 {
            let mut rest = taken.drain(..).peekable();
            while rest.peek().is_some() {
                let mut bytes = 0;
                let mut requests = Vec::new();
                let mut dones = Vec::new();
                while bytes < BATCH_BYTES_MAX
                    && let Some(QueuedRequest { request, done }) = rest.next()
                {
                    bytes += request.payload_bytes();
                    requests.push(request);
                    dones.push(done);
                }
                let results = self.execute(&requests).await;
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                for (done, result) in dones.into_iter().zip(results) {
                    done(result);
                }
            }
        }
    }

    async fn execute(&mut self, requests: &[StateRequest]) -> Vec<Result<StateReply, StateError>> {
        match self.session().await {
            Ok(session) => {
                let (session, results) = session.run(requests).await;
                self.session = session;
                results
            }
            Err(reason) => {
                let failure = unreachable_because(reason);
                requests.iter().map(|_| Err(failure.clone().into())).collect()
            }
        }
    }

    async fn session(&mut self) -> Result<Session, String> {
        if let Some(session) = self.session.take().filter(Session::is_open) {
            return Ok(session);
        }
        if Instant::now() < self.retry_at {
            return Err("the last connection attempt failed a moment ago".to_owned());
        }
        let opened = open(&self.config, self.tls.as_ref(), &self.schema).await;
        opened.map_err(|failed| {
            self.retry_at = Instant::now() + RECONNECT_AFTER;
            failed.to_string()
        })
    }
}

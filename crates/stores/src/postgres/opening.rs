//! Opening a connection: dialling, checking the schema, preparing the statements.

use std::error::Error as _;
use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::layout::{self, LayoutError};
use super::session::{Session, describe};
use super::statements::{PrepareError, Statements};
use super::tls::Tls;

/// The timeout of opening a connection to an existing schema.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of creating the schema: other servers may hold the lock, on a busy machine.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit of a starting server's retries of PostgreSQL, the same as for etcd. A restart takes less.
pub(super) const CONNECT_RETRY_TIME: Duration = Duration::from_secs(30);
/// The delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A connection and the task that drives it.
pub(super) struct Connection {
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The step at which opening a connection failed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Connecting,
    Checking,
    Creating,
    Preparing,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Connecting => "connecting",
            Step::Checking => "checking the schema",
            Step::Creating => "creating the schema",
            Step::Preparing => "preparing the statements",
        })
    }
}

/// The reason why no connection was opened.
#[derive(Debug)]
pub(super) struct OpenFailed {
    step: Step,
    reason: String,
    /// Whether a retry may succeed.
    is_transient: bool,
}

impl Display for OpenFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)
    }
}

/// Connects, and creates or upgrades the schema if necessary.
pub(super) async fn open(config: &Config, tls: Option<&Tls>, schema: &str) -> Result<Session, OpenFailed> {
    let mut deadline = Instant::now() + CONNECT_TIMEOUT;
    let connection = with_deadline(Step::Connecting, deadline, connect(config, tls)).await?;
    let client = &connection.client;
    if !with_deadline(Step::Checking, deadline, check_schema(client, schema)).await? {
        let upgrade = layout::upgrade(client, schema);
        with_deadline(Step::Creating, Instant::now() + SCHEMA_TIMEOUT, upgrade).await?;
        deadline = Instant::now() + CONNECT_TIMEOUT;
    }
    let statements = with_deadline(Step::Preparing, deadline, Statements::prepare(client, schema)).await?;
    Ok(Session { connection, statements })
}

/// Like [`open`], with retries while the server is unreachable: it may be starting at the same time.
pub(super) async fn open_with_retries(
    config: &Config,
    tls: Option<&Tls>,
    schema: &str,
    retry_time: Duration,
) -> Result<Session, OpenFailed> {
    let began = Instant::now();
    loop {
        match open(config, tls, schema).await {
            Err(failed) if failed.is_transient && began.elapsed() < retry_time => {
                tracing::warn!(%failed, "the PostgreSQL server is unavailable; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            opened => return opened,
        }
    }
}

async fn connect(config: &Config, tls: Option<&Tls>) -> Result<Connection, Error> {
    let (client, driver) = match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            (client, tokio::spawn(drive(connection)))
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, tokio::spawn(drive(connection)))
        }
    };
    Ok(Connection { client, driver })
}

/// Drives a connection until it ends.
async fn drive(connection: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "PostgreSQL connection ended");
    }
}

async fn check_schema(client: &Client, schema: &str) -> Result<bool, LayoutError> {
    // Notices about existing tables are of no use.
    let settings = "SET client_min_messages = warning; SET synchronous_commit = on;";
    client.batch_execute(settings).await?;
    layout::is_up_to_date(client, schema).await
}

/// Runs a step with a deadline.
async fn with_deadline<T, E: Cause>(
    step: Step,
    deadline: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, OpenFailed> {
    let began = Instant::now();
    match timeout_at(deadline, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(OpenFailed {
            step,
            reason: error.describe(),
            is_transient: error.is_transient(),
        }),
        Err(_) => Err(OpenFailed {
            step,
            reason: format!("timed out after {:.1?}", deadline - began),
            is_transient: true,
        }),
    }
}

/// The error of a step.
trait Cause {
    /// A message with the causes.
    fn describe(&self) -> String;
    /// Whether a retry may succeed.
    fn is_transient(&self) -> bool;
}

impl Cause for Error {
    fn describe(&self) -> String {
        describe(self)
    }

    fn is_transient(&self) -> bool {
        if let Some(code) = self.code() {
            return [
                SqlState::CANNOT_CONNECT_NOW,
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::TOO_MANY_CONNECTIONS,
            ]
            .contains(code);
        }
        let source = self.source().and_then(|source| source.downcast_ref::<io::Error>());
        // A certificate mismatch is reported as invalid data, and a retry does not help.
        self.is_closed() || source.is_some_and(|error| error.kind() != io::ErrorKind::InvalidData)
    }
}

impl Cause for LayoutError {
    fn describe(&self) -> String {
        match self {
            LayoutError::Server(error) => error.describe(),
            LayoutError::TooNew { .. } => self.to_string(),
        }
    }

    fn is_transient(&self) -> bool {
        matches!(self, LayoutError::Server(error) if error.is_transient())
    }
}

impl Cause for PrepareError {
    fn describe(&self) -> String {
        match self {
            PrepareError::Server(error) => error.describe(),
            PrepareError::Foreign { .. } => self.to_string(),
        }
    }

    fn is_transient(&self) -> bool {
        matches!(self, PrepareError::Server(error) if error.is_transient())
    }
}

//! Opening a connection: reaching the server, looking whether the schema is there, preparing the statements.

use std::error::Error as _;
use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::layout::{self, LayoutError};
use super::session::{Session, told};
use super::statements::{PrepareError, Statements};
use super::tls::Tls;

/// How long opening a connection may take when the schema is there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long making the schema may take: other servers that start may be at it, on a machine that is busy.
const SCHEMA_TIME_MAX: Duration = Duration::from_secs(20);
/// For how long a server that starts tries to reach PostgreSQL. As long as it does with etcd: a restart takes less.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait between two tries.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A connection, and what carries it.
pub(super) struct Connected {
    pub(super) client: Client,
    driving: JoinHandle<()>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// What was being done when opening a connection failed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Connecting,
    Looking,
    Making,
    Preparing,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Connecting => "connecting",
            Step::Looking => "looking for the schema",
            Step::Making => "making the schema",
            Step::Preparing => "preparing the statements",
        })
    }
}

/// Why no connection was opened. Nothing is left of it.
#[derive(Debug)]
pub(super) struct OpenFailed {
    step: Step,
    reason: String,
    /// Whether it may go better by itself.
    is_passing: bool,
}

impl Display for OpenFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)
    }
}

/// Connects, and makes sure that the schema is there.
pub(super) async fn open(config: &Config, tls: Option<&Tls>, schema: &str) -> Result<Session, OpenFailed> {
    let mut until = Instant::now() + CONNECT_TIME_MAX;
    let connected = within(Step::Connecting, until, connect(config, tls)).await?;
    let client = &connected.client;
    if !within(Step::Looking, until, look(client, schema)).await? {
        let making = layout::bring_up_to_date(client, schema);
        within(Step::Making, Instant::now() + SCHEMA_TIME_MAX, making).await?;
        until = Instant::now() + CONNECT_TIME_MAX;
    }
    let statements = within(Step::Preparing, until, Statements::prepare(client, schema)).await?;
    Ok(Session { connected, statements })
}

/// The same, again and again for so long while the server can't be reached: it may well be started at the same time.
pub(super) async fn open_with_retries(
    config: &Config,
    tls: Option<&Tls>,
    schema: &str,
    patience: Duration,
) -> Result<Session, OpenFailed> {
    let began = Instant::now();
    loop {
        match open(config, tls, schema).await {
            Err(failed) if failed.is_passing && began.elapsed() < patience => {
                tracing::warn!(%failed, "the PostgreSQL server can't be used yet; trying again");
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            opened => return opened,
        }
    }
}

async fn connect(config: &Config, tls: Option<&Tls>) -> Result<Connected, Error> {
    let (client, driving) = match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            (client, tokio::spawn(drive(connection)))
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, tokio::spawn(drive(connection)))
        }
    };
    Ok(Connected { client, driving })
}

/// Carries a connection until it ends.
async fn drive(connection: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "the connection to PostgreSQL has ended");
    }
}

async fn look(client: &Client, schema: &str) -> Result<bool, LayoutError> {
    // What the server has to say about things that are there already interests nobody.
    let settings = "SET client_min_messages = warning; SET synchronous_commit = on;";
    client.batch_execute(settings).await?;
    layout::is_up_to_date(client, schema).await
}

/// Does a step, if it does not take too long.
async fn within<T, E: Cause>(
    step: Step,
    until: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, OpenFailed> {
    let began = Instant::now();
    match timeout_at(until, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(OpenFailed {
            step,
            reason: error.told(),
            is_passing: error.is_passing(),
        }),
        Err(_) => Err(OpenFailed {
            step,
            reason: format!("not done within {:.1?}", until - began),
            is_passing: true,
        }),
    }
}

/// Why a step failed.
trait Cause {
    /// For people.
    fn told(&self) -> String;
    /// Whether it may go better by itself.
    fn is_passing(&self) -> bool;
}

impl Cause for Error {
    fn told(&self) -> String {
        told(self)
    }

    fn is_passing(&self) -> bool {
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
        // Certificates that don't fit are invalid data.
        self.is_closed() || source.is_some_and(|error| error.kind() != io::ErrorKind::InvalidData)
    }
}

impl Cause for LayoutError {
    fn told(&self) -> String {
        match self {
            LayoutError::Server(error) => error.told(),
            LayoutError::TooNew { .. } => self.to_string(),
        }
    }

    fn is_passing(&self) -> bool {
        matches!(self, LayoutError::Server(error) if error.is_passing())
    }
}

impl Cause for PrepareError {
    fn told(&self) -> String {
        match self {
            PrepareError::Server(error) => error.told(),
            PrepareError::Foreign { .. } => self.to_string(),
        }
    }

    fn is_passing(&self) -> bool {
        matches!(self, PrepareError::Server(error) if error.is_passing())
    }
}

//! One connection to the server. A batch of requests becomes one transaction on it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest, StoreFailure};
use tokio::time::timeout;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::opening::Connection;
use super::statements::{StatementResult, Statements};

/// The timeout of a batch. Longer than any working disk takes to write it.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The most attempts of a transaction that conflicts with others.
const ATTEMPTS_MAX: u32 = 5;
pub(super) type StateResult = Result<StateReply, StateError>;

/// A connection with its statements.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) statements: Statements,
}

/// The outcome of a batch.
enum Batch {
    /// All is durable.
    Committed(Vec<StatementResult>),
    /// The server rolled it back, with this error.
    RolledBack(Error),
    /// The connection broke. The commit was pipelined with the rest, so it may have been applied.
    Broken(String),
}

impl Session {
    /// Whether the connection is open, as far as the client knows.
    pub(super) fn is_open(&self) -> bool {
        !self.connection.client.is_closed()
    }

    /// Executes requests in order in one transaction and returns their results. The session is `None` if the connection
    /// can't be used any more.
    pub(super) async fn run(self, requests: &[StateRequest]) -> (Option<Session>, Vec<StateResult>) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let batch = timeout(BATCH_TIMEOUT, self.transact(requests)).await;
            let batch = batch.unwrap_or_else(|_| Batch::Broken(format!("no response within {BATCH_TIMEOUT:?}")));
            match batch {
                Batch::Committed(statement_results) => {
                    let mut results = Vec::with_capacity(requests.len());
                    for (request, result) in requests.iter().zip(statement_results) {
                        results.push(self.conclude(request, result).await);
                    }
                    return (Some(self), results);
                }
                Batch::RolledBack(error) if is_transient(&error) && attempts < ATTEMPTS_MAX => {
                    tracing::debug!(%error, "retrying a transaction");
                }
                Batch::RolledBack(error) => {
                    let failure = failure(&error);
                    let results = requests.iter().map(|_| Err(failure.clone().into())).collect();
                    let usable = self.is_open().then_some(self);
                    return (usable, results);
                }
                Batch::Broken(reason) => {
                    let results = requests.iter().map(|request| broken(request, &reason));
                    return (None, results.collect());
                }
            }
        }
    }

    /// Pipelines everything from the begin to the commit, so that a batch costs one round trip.
    async fn transact(&self, requests: &[StateRequest]) -> Batch {
        let begin = pin!(self.connection.client.batch_execute("BEGIN"));
        let commit = pin!(self.connection.client.batch_execute("COMMIT"));
        let mut begin = Sent::new(begin);
        let mut sent: Vec<_> = requests
            .iter()
            .map(|request| Sent::new(Box::pin(self.statements.run(&self.connection.client, request))))
            .collect();
        let mut commit = Sent::new(commit);
        // A request is sent when it is first polled, and the order matters.
        begin.send().await;
        for request in &mut sent {
            request.send().await;
        }
        commit.send().await;

        if let Err(error) = begin.end().await {
            return broken_or_rolled_back(error);
        }
        let mut results = Vec::with_capacity(sent.len());
        let mut failed = None;
        for request in sent {
            match request.end().await {
                Ok(result) => results.push(result),
                // Later statements fail as a consequence.
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        let committed = commit.end().await;
        match (failed, committed) {
            (Some(error), _) => broken_or_rolled_back(error),
            (None, Ok(())) => Batch::Committed(results),
            (None, Err(error)) => broken_or_rolled_back(error),
        }
    }

    async fn conclude(&self, request: &StateRequest, result: StatementResult) -> StateResult {
        let actor = match (result, request) {
            (StatementResult::Completed(result), _) => return result,
            (
                StatementResult::Fenced,
                StateRequest::Claim { actor, .. }
                | StateRequest::Save { actor, .. }
                | StateRequest::Delete { actor, .. },
            ) => actor,
            (StatementResult::Fenced, other) => unreachable!("{other:?} is not fenced"),
        };
        match timeout(BATCH_TIMEOUT, self.statements.epoch(&self.connection.client, actor)).await {
            Ok(Ok(stored)) => Err(StateError::Fenced { stored }),
            // Nothing was changed, but the epoch of the current owner is unknown.
            Ok(Err(error)) => Err(unreachable_because(describe(&error)).into()),
            Err(_) => Err(unreachable_because("no response in time".to_owned()).into()),
        }
    }
}

/// A pipelined request: polled once to send it, before its response is awaited.
struct Sent<F: Future> {
    future: F,
    early: Option<F::Output>,
}

impl<F: Future + Unpin> Sent<F> {
    fn new(future: F) -> Self {
        let early = None;
        Self { future, early }
    }

    async fn send(&mut self) {
        let future = &mut self.future;
        self.early = poll_fn(|context| match pin!(&mut *future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
    }

    async fn end(self) -> F::Output {
        match self.early {
            Some(output) => output,
            None => self.future.await,
        }
    }
}

fn broken_or_rolled_back(error: Error) -> Batch {
    if error.as_db_error().is_some() {
        return Batch::RolledBack(error);
    }
    Batch::Broken(describe(&error))
}

fn broken(request: &StateRequest, reason: &str) -> StateResult {
    let reason = reason.to_owned();
    // A read changes nothing, so its outcome is never in doubt.
    Err(if request.is_write() {
        StoreFailure::Interrupted { reason }.into()
    } else {
        unreachable_because(reason).into()
    })
}

pub(super) fn unreachable_because(reason: String) -> StoreFailure {
    StoreFailure::Unreachable { reason }
}

/// Whether a retry of the same transaction may succeed.
fn is_transient(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

/// Translates an error of the server. Nothing was changed.
fn failure(error: &Error) -> StoreFailure {
    let reason = describe(error);
    match error.code() {
        Some(&SqlState::DISK_FULL) => StoreFailure::DiskFull,
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) | Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            StoreFailure::ReadOnly { reason }
        }
        Some(&SqlState::DATA_CORRUPTED) | Some(&SqlState::INDEX_CORRUPTED) => StoreFailure::Corrupt { reason },
        Some(&SqlState::ADMIN_SHUTDOWN) | Some(&SqlState::CRASH_SHUTDOWN) | Some(&SqlState::CANNOT_CONNECT_NOW) => {
            unreachable_because(reason)
        }
        _ => StoreFailure::Io { reason },
    }
}

/// Formats an error with its cause.
pub(super) fn describe(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

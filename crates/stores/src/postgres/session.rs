//! One connection to the server, and how a batch of requests becomes one transaction on it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest, StoreFailure};
use tokio::time::timeout;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::opening::Connected;
use super::statements::{Answered, Statements};

/// How long the server may take to do a batch. Longer than any disk takes to write it: the server hangs.
const BATCH_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a transaction is tried that others have got in the way of.
const TRIES_MAX: u32 = 5;
pub(super) type StateResult = Result<StateReply, StateError>;

/// A connection with its statements.
pub(super) struct Session {
    pub(super) connected: Connected,
    pub(super) statements: Statements,
}

/// What became of a batch.
enum Batch {
    /// All is durable.
    Committed(Vec<Answered>),
    /// Nothing was done, and the server said why.
    RolledBack(Error),
    /// The connection broke. The commit was sent along with the rest, so it may have been carried out.
    Broken(String),
}

impl Session {
    /// Whether the connection is still there, as far as one can know.
    pub(super) fn is_open(&self) -> bool {
        !self.connected.client.is_closed()
    }

    /// Carries out requests as one transaction, in order, and says how each ended. `None` if the connection can't be used
    /// any more.
    pub(super) async fn run(self, requests: &[StateRequest]) -> (Option<Session>, Vec<StateResult>) {
        let mut tries = 0;
        loop {
            tries += 1;
            let batch = timeout(BATCH_TIME_MAX, self.transact(requests)).await;
            let batch = batch.unwrap_or_else(|_| Batch::Broken(format!("no answer within {BATCH_TIME_MAX:?}")));
            match batch {
                Batch::Committed(answers) => {
                    let mut results = Vec::with_capacity(requests.len());
                    for (request, answered) in requests.iter().zip(answers) {
                        results.push(self.conclude(request, answered).await);
                    }
                    return (Some(self), results);
                }
                Batch::RolledBack(error) if is_passing(&error) && tries < TRIES_MAX => {
                    tracing::debug!(%error, "a transaction is tried again");
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

    /// Sends everything at once, from the begin to the commit, so that a batch costs one round trip.
    async fn transact(&self, requests: &[StateRequest]) -> Batch {
        let begin = pin!(self.connected.client.batch_execute("BEGIN"));
        let commit = pin!(self.connected.client.batch_execute("COMMIT"));
        let mut begin = Sent::new(begin);
        let mut sent: Vec<_> = requests
            .iter()
            .map(|request| Sent::new(Box::pin(self.statements.run(&self.connected.client, request))))
            .collect();
        let mut commit = Sent::new(commit);
        // Each is sent when it is first polled, and they must be in order.
        begin.send().await;
        for request in &mut sent {
            request.send().await;
        }
        commit.send().await;

        if let Err(error) = begin.end().await {
            return broken_or_rolled_back(error);
        }
        let mut answers = Vec::with_capacity(sent.len());
        let mut failed = None;
        for request in sent {
            match request.end().await {
                Ok(answered) => answers.push(answered),
                // Those after it fail because of it.
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        let committed = commit.end().await;
        match (failed, committed) {
            (Some(error), _) => broken_or_rolled_back(error),
            (None, Ok(())) => Batch::Committed(answers),
            (None, Err(error)) => broken_or_rolled_back(error),
        }
    }

    async fn conclude(&self, request: &StateRequest, answered: Answered) -> StateResult {
        let actor = match (answered, request) {
            (Answered::Ended(result), _) => return result,
            (
                Answered::Fenced,
                StateRequest::Claim { actor, .. }
                | StateRequest::Save { actor, .. }
                | StateRequest::Delete { actor, .. },
            ) => actor,
            (Answered::Fenced, other) => unreachable!("{other:?} is not fenced"),
        };
        match timeout(BATCH_TIME_MAX, self.statements.epoch(&self.connected.client, actor)).await {
            Ok(Ok(stored)) => Err(StateError::Fenced { stored }),
            // Nothing was changed, but by whom it was fenced off is not known.
            Ok(Err(error)) => Err(unreachable_because(told(&error)).into()),
            Err(_) => Err(unreachable_because("no answer in time".to_owned()).into()),
        }
    }
}

/// A request that was sent before its answer is waited for.
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
    Batch::Broken(told(&error))
}

fn broken(request: &StateRequest, reason: &str) -> StateResult {
    let reason = reason.to_owned();
    // A read changes nothing, whether it was carried out or not.
    Err(if request.is_write() {
        StoreFailure::Interrupted { reason }.into()
    } else {
        unreachable_because(reason).into()
    })
}

pub(super) fn unreachable_because(reason: String) -> StoreFailure {
    StoreFailure::Unreachable { reason }
}

/// Whether the same transaction may succeed when it is tried again.
fn is_passing(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

/// What an error of the server means. Nothing was changed.
fn failure(error: &Error) -> StoreFailure {
    let reason = told(error);
    match error.code() {
        Some(&SqlState::DISK_FULL) => StoreFailure::DiskFull,
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) | Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            StoreFailure::ReadOnly { reason }
        }
        Some(&SqlState::DATA_CORRUPTED) | Some(&SqlState::INDEX_CORRUPTED) => StoreFailure::Corrupt { what: reason },
        Some(&SqlState::ADMIN_SHUTDOWN) | Some(&SqlState::CRASH_SHUTDOWN) | Some(&SqlState::CANNOT_CONNECT_NOW) => {
            unreachable_because(reason)
        }
        _ => StoreFailure::Io { reason },
    }
}

/// An error with its cause, for people.
pub(super) fn told(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

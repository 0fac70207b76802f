//! Futures instead of callbacks, for code that runs on tokio.

use std::future::Future;
use std::time::Duration;

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, StateError, StateReply,
    StateRequest, StateStore, StoreFailure,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Futures for state requests.
pub trait StateStoreExt: StateStore {
    /// Submits a request immediately; the future resolves to its result.
    fn call(&self, request: StateRequest) -> impl Future<Output = Result<StateReply, StateError>> + Send + 'static {
        let (done, end) = callback();
        self.submit(request, done);
        end
    }
}

impl<S: StateStore + ?Sized> StateStoreExt for S {}

/// Futures for coordination requests.
pub trait CoordinationExt: Coordination {
    /// Submits a request immediately; the future resolves to its result.
    fn call(
        &self,
        request: impl Into<CoordinationRequest>,
    ) -> impl Future<Output = Result<CoordinationReply, CoordinationError>> + Send + 'static {
        let (done, end) = callback();
        self.submit(request.into(), done);
        end
    }
}

impl<C: Coordination + ?Sized> CoordinationExt for C {}

/// The time limit of retries of an unavailable coordination store. An election, or a restart of all its servers, takes
/// less.
const RETRY_TIME_MAX: Duration = Duration::from_secs(30);
/// The delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Submits a request and retries for half a minute while the coordination store is unavailable.
///
/// A process may start while the store elects a leader or is itself starting.
///
/// # Panics
/// If the request is not idempotent: without a reply it may have been applied.
pub async fn call_with_retries(
    coordination: &(impl Coordination + ?Sized),
    request: impl Into<CoordinationRequest>,
) -> Result<CoordinationReply, CoordinationError> {
    let request = request.into();
    assert!(is_idempotent(&request), "only idempotent requests can be retried");
    let began = Instant::now();
    loop {
        match coordination.call(request.clone()).await {
            Err(CoordinationError::Failed(failure)) if began.elapsed() < RETRY_TIME_MAX => {
                tracing::warn!(%failure, "coordination is unavailable; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            answer => return answer,
        }
    }
}

fn is_idempotent(request: &CoordinationRequest) -> bool {
    match request {
        CoordinationRequest::Get { .. } | CoordinationRequest::Range { .. } => true,
        // A lease that no client knows expires by itself.
        CoordinationRequest::Grant { .. } | CoordinationRequest::KeepAlive { .. } => true,
        CoordinationRequest::Commit(commit) => commit.is_idempotent(),
        CoordinationRequest::Revoke { .. } => false,
    }
}

/// A callback and the future that it completes.
fn callback<Reply: Send + 'static, Error: From<StoreFailure> + Send + 'static>() -> (
    Done<Reply, Error>,
    impl Future<Output = Result<Reply, Error>> + Send + 'static,
) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // The caller may have dropped the future.
        let _ = sender.send(result);
    });
    let end = async move {
        receiver.await.unwrap_or_else(|_| {
            // A callback is dropped without being called only if the store's thread has panicked.
            let reason = "the store has stopped".to_owned();
            Err(StoreFailure::Interrupted { reason }.into())
        })
    };
    (done, end)
}

#[cfg(test)]
mod tests {
    use elastin_protocol::store::{Commit, KeyState, LeaseId};

    use super::*;

    #[test]
    fn only_idempotent_requests_are_retried() {
        let put = || Commit::put("key", "value");
        assert!(is_idempotent(&CoordinationRequest::Get { key: "key".into() }));
        assert!(is_idempotent(&put().when("key", KeyState::Absent).into()));
        // Would overwrite a concurrent write.
        assert!(!is_idempotent(&put().into()));
        assert!(!is_idempotent(&put().when("other", KeyState::Absent).into()));
        assert!(!is_idempotent(&Commit::delete("key").into()));
        assert!(!is_idempotent(&CoordinationRequest::Revoke { lease: LeaseId(1) }));
    }
}

//! Futures instead of callbacks, for code that runs on tokio.

use std::future::Future;
use std::time::Duration;

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, StateError, StateReply,
    StateRequest, StateStore, StoreFailure,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Waits for the end of state requests.
pub trait StateStoreExt: StateStore {
    /// Submits a request at once, and waits for its end when awaited.
    fn call(&self, request: StateRequest) -> impl Future<Output = Result<StateReply, StateError>> + Send + 'static {
        let (done, end) = callback();
        self.submit(request, done);
        end
    }
}

impl<S: StateStore + ?Sized> StateStoreExt for S {}

/// Waits for the end of coordination requests.
pub trait CoordinationExt: Coordination {
    /// Submits a request at once, and waits for its end when awaited.
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

/// How long a request is put again and again to coordination that does not answer: an election, or a restart of all its
/// servers, takes less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait between two tries.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Asks until it is answered, or for half a minute: a process may well be started while coordination elects a leader or comes
/// up itself.
///
/// # Panics
/// If the request may do harm when it is carried out twice, which can't be excluded when no answer came.
pub async fn call_with_retries(
    coordination: &(impl Coordination + ?Sized),
    request: impl Into<CoordinationRequest>,
) -> Result<CoordinationReply, CoordinationError> {
    let request = request.into();
    assert!(
        is_harmless_twice(&request),
        "only what does no harm when it is done twice is asked again"
    );
    let began = Instant::now();
    loop {
        match coordination.call(request.clone()).await {
            Err(CoordinationError::Failed(failure)) if began.elapsed() < PATIENCE => {
                tracing::warn!(%failure, "coordination does not answer; trying again");
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
            answer => return answer,
        }
    }
}

fn is_harmless_twice(request: &CoordinationRequest) -> bool {
    match request {
        CoordinationRequest::Get { .. } | CoordinationRequest::Range { .. } => true,
        // A lease that nobody knows of ends by itself.
        CoordinationRequest::Grant { .. } | CoordinationRequest::KeepAlive { .. } => true,
        CoordinationRequest::Commit(commit) => commit.is_harmless_twice(),
        CoordinationRequest::Revoke { .. } => false,
    }
}

/// A callback, and the future that it completes.
fn callback<Reply: Send + 'static, Error: From<StoreFailure> + Send + 'static>() -> (
    Done<Reply, Error>,
    impl Future<Output = Result<Reply, Error>> + Send + 'static,
) {
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // Nobody waits any more: the caller has lost interest.
        let _ = sender.send(result);
    });
    let end = async move {
        receiver.await.unwrap_or_else(|_| {
            // Only a store whose thread has panicked drops a callback without calling it.
            let reason = "the store has ended".to_owned();
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
    fn only_what_does_no_harm_twice_is_asked_again() {
        let put = || Commit::put("key", "value");
        assert!(is_harmless_twice(&CoordinationRequest::Get { key: "key".into() }));
        assert!(is_harmless_twice(&put().when("key", KeyState::Absent).into()));
        // It would overwrite what somebody else has written meanwhile.
        assert!(!is_harmless_twice(&put().into()));
        assert!(!is_harmless_twice(&put().when("other", KeyState::Absent).into()));
        assert!(!is_harmless_twice(&Commit::delete("key").into()));
        assert!(!is_harmless_twice(&CoordinationRequest::Revoke { lease: LeaseId(1) }));
    }
}

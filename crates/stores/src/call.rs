//! Futures instead of callbacks, for code that runs on tokio.

use std::future::Future;

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, StateError, StateReply,
    StateRequest, StateStore, StoreFailure,
};
use tokio::sync::oneshot;

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

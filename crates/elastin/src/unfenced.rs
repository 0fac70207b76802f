//! A planted bug: a state store without fencing, which overwrites the state of a later activation. Tests use it to
//! prove that their checkers find lost writes.

use std::sync::Arc;

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StateStore};

/// Retries fenced writes with the epoch of the later activation.
pub(crate) struct Unfenced(Arc<dyn StateStore>);

impl Unfenced {
    pub(crate) fn over(store: Arc<dyn StateStore>) -> Arc<dyn StateStore> {
        Arc::new(Self(store))
    }
}

impl StateStore for Unfenced {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        let StateRequest::Save { actor, state, .. } = request.clone() else {
            return self.0.submit(request, done);
        };
        let store = Arc::clone(&self.0);
        let retry = move |result| match result {
            Err(StateError::Fenced { stored: epoch }) => {
                store.submit(StateRequest::Save { actor, epoch, state }, done);
            }
            result => done(result),
        };
        self.0.submit(request, Box::new(retry));
    }
}

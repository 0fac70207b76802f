//! A bug on purpose: a state store that writes whatever a later activation has written, so that tests can show that they
//! would find it.

use std::sync::Arc;

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StateStore};

/// Writes again, in the name of the later activation, what the store has refused because of it.
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
        let again = move |result| match result {
            Err(StateError::Fenced { stored: epoch }) => {
                store.submit(StateRequest::Save { actor, epoch, state }, done);
            }
            result => done(result),
        };
        self.0.submit(request, Box::new(again));
    }
}

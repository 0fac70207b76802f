//! A `Remote` that activates every actor locally and whose saves the test completes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use elastin_actor::ReplySender;
use elastin_runtime::{Grant, Remote, SaveDone, StateImage};
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, Outcome};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// A `Remote` whose saves the test completes.
pub(crate) struct SlowStore {
    saves: mpsc::UnboundedSender<(Bytes, SaveDone)>,
    kept: Mutex<BTreeMap<ActorId, Bytes>>,
}

impl SlowStore {
    /// The store, and a receiver of its saves.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<(Bytes, SaveDone)>) {
        let (saves, received) = mpsc::unbounded_channel();
        let kept = Mutex::default();
        (Arc::new(Self { saves, kept }), received)
    }

    /// Sets the state that the next activation of an actor starts from.
    pub(crate) fn keep(&self, actor: &ActorId, state: Bytes) {
        self.kept.lock().insert(actor.clone(), state);
    }
}

impl Remote for SlowStore {
    fn may_activate_here(&self, actor: &ActorId) -> Option<Grant> {
        let kept = self.kept.lock().get(actor).cloned();
        Some(Grant {
            epoch: ActivationEpoch::default(),
            image: kept.map(|state| StateImage { state, moved: false }),
        })
    }

    fn send(&self, message: Arc<Message>, _reply: Option<ReplySender>) {
        panic!("every actor is local, but {message:?} was sent away");
    }

    fn reply(&self, call: CallId, _outcome: Outcome) {
        panic!("every caller is local, but the reply of {call:?} was sent away");
    }

    fn save(&self, _actor: &ActorId, _epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        assert!(self.saves.send((state, done)).is_ok(), "the test receives all saves");
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

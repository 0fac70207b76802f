//! Blocking access to a store, with a timeout, for the tests of stores.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use elastin_protocol::store::conformance::{CoordinationSubject, StateSubject};
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Revision, StateError, StateReply,
    StateRequest, StateStore, WatchBatch, WatchGuard,
};

/// The timeout of every step of a test: far longer than it takes on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Executes one state request.
pub(crate) fn ask_state(store: &dyn StateStore, request: StateRequest) -> Result<StateReply, StateError> {
    let description = format!("{request:?}").chars().take(200).collect::<String>();
    let (sender, receiver) = mpsc::channel();
    store.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver
        .recv_timeout(LIMIT)
        .unwrap_or_else(|error| panic!("no reply to {description}: {error}"))
}

/// Executes one coordination request.
pub(crate) fn ask_coordination(
    store: &dyn Coordination,
    request: impl Into<CoordinationRequest>,
) -> Result<CoordinationReply, CoordinationError> {
    let request = request.into();
    let description = format!("{request:?}");
    let (sender, receiver) = mpsc::channel();
    store.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver
        .recv_timeout(LIMIT)
        .unwrap_or_else(|error| panic!("no reply to {description}: {error}"))
}

/// A watch whose batches are received one by one.
pub(crate) struct Watching {
    pub(crate) batches: Receiver<Result<WatchBatch, CoordinationError>>,
    _guard: WatchGuard,
}

impl Watching {
    pub(crate) fn start(store: &dyn Coordination, prefix: &str, from: Revision) -> Self {
        let (sender, batches) = mpsc::channel();
        let sink = Box::new(move |batch| {
            // The test may have ended.
            let _ = sender.send(batch);
        });
        let _guard = store.watch(prefix.to_owned(), from, sink);
        Self { batches, _guard }
    }

    pub(crate) fn next(&self) -> Result<WatchBatch, CoordinationError> {
        self.batches.recv_timeout(LIMIT).expect("the watch gets a batch")
    }
}

/// A state store as the subject of the scripts.
pub(crate) struct StateUnderTest(pub(crate) Arc<dyn StateStore>);

impl StateSubject for StateUnderTest {
    fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError> {
        ask_state(&*self.0, request)
    }

    fn pass(&mut self, time: Duration) {
        // Not polling: the script needs exactly this time to pass, and the store itself has named it.
        std::thread::sleep(time);
    }
}

/// A coordination store as the subject of the scripts.
pub(crate) struct CoordinationUnderTest {
    pub(crate) store: Arc<dyn Coordination>,
    pub(crate) watches: Vec<Watching>,
}

impl CoordinationUnderTest {
    pub(crate) fn new(store: Arc<dyn Coordination>) -> Self {
        let watches = Vec::new();
        Self { store, watches }
    }
}

impl CoordinationSubject for CoordinationUnderTest {
    fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        ask_coordination(&*self.store, request)
    }

    fn watch(&mut self, prefix: &str, from: Revision) {
        self.watches.push(Watching::start(&*self.store, prefix, from));
    }

    fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>> {
        self.watches[watch].batches.recv_timeout(LIMIT).ok()
    }

    fn end(&mut self) {
        self.watches.clear();
    }
}

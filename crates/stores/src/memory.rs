//! Stores in memory, which lose everything when they are dropped.

use elastin_clock::Clock;
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Done, MemoryTables,
    Revision, StateError, StateModel, StateReply, StateRequest, StateStore, StoreFailure, Touched, WatchGuard,
    WatchSink,
};
use elastin_types::Time;

use crate::coordination_engine::{CoordinationEngine, Journal};
use crate::local_coordination::LocalCoordination;
use crate::state_engine::{self, StateBacking, StateEngine, StateJob, StateResult};
use crate::worker::Worker;

/// A state store in memory.
pub struct MemoryState {
    worker: Worker<StateJob>,
}

impl MemoryState {
    /// Starts an empty store.
    pub fn start() -> Self {
        Self::start_on(Clock::start())
    }

    /// Starts an empty store on the time of this clock.
    pub fn start_on(clock: Clock) -> Self {
        let model = StateModel::new(MemoryTables::default());
        let worker = Worker::start("state-memory", clock, StateEngine(model));
        Self { worker }
    }
}

impl StateStore for MemoryState {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        state_engine::submit(&self.worker, request, done);
    }
}

impl StateBacking for StateModel<MemoryTables> {
    fn run(&mut self, now: Time, requests: Vec<StateRequest>) -> Vec<StateResult> {
        requests.into_iter().map(|request| self.handle(now, request)).collect()
    }
}

/// Coordination in memory.
pub struct MemoryCoordination {
    local: LocalCoordination,
}

impl MemoryCoordination {
    /// Starts an empty store.
    pub fn start() -> Self {
        Self::start_on(Clock::start())
    }

    /// Starts an empty store on the time of this clock.
    pub fn start_on(clock: Clock) -> Self {
        let engine = CoordinationEngine::load(NoJournal).expect("loading an empty model never fails");
        let local = LocalCoordination::start("coord-memory", clock, engine);
        Self { local }
    }
}

impl Coordination for MemoryCoordination {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        self.local.submit(request, done);
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        self.local.watch(prefix, from, sink)
    }
}

/// Persists nothing.
struct NoJournal;

impl Journal for NoJournal {
    fn load(&mut self, _now: Time) -> Result<CoordinationModel, StoreFailure> {
        Ok(CoordinationModel::default())
    }

    fn persist(&mut self, _model: &CoordinationModel, _touched: &Touched) -> Result<(), StoreFailure> {
        Ok(())
    }
}

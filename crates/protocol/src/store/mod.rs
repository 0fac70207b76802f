//! Storage contracts: the state store and coordination traits, with reference models that define their semantics.
//!
//! Requests and replies are plain data, so that the wire, the simulator and every implementation share one vocabulary:
//!
//! ```text
//!   caller ── StateRequest ──────► StateStore   ── done(Result<StateReply, StateError>) ──► caller
//!   caller ── CoordinationRequest ► Coordination ── done(Result<CoordinationReply, …>) ───► caller
//! ```
//!
//! [`StateModel`] and [`CoordinationModel`] define the semantics of each request once. The memory and the embedded
//! store run these models over their tables, and the simulator runs them in virtual time. The scripts in
//! [`conformance`] hold implementations on external databases to the same behaviour.

pub mod conformance;

mod coordination;
mod coordination_model;
mod failure;
mod state;
mod state_model;

pub use coordination::{
    COMMIT_BYTES_MAX, COORDINATION_KEY_BYTES_MAX, COORDINATION_VALUE_BYTES_MAX, Change, Commit, Condition,
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Entry, KeyState, LEASE_TTL_MIN, LeaseId,
    RANGE_BYTES_MAX, RANGE_LIMIT_MAX, Revision, WATCH_BATCH_CHANGES_MAX, WRITES_MAX, WatchBatch, WatchGuard, WatchSink,
    Write,
};
pub use coordination_model::{CoordinationModel, HISTORY_CHANGES_MAX, StoredLease, Touched};
pub use failure::StoreFailure;
pub use state::{
    Expected, LockToken, SCAN_BYTES_MAX, SCAN_LIMIT_MAX, STATE_BYTES_MAX, Space, StateError, StateReply, StateRequest,
    StateStore, VALUE_BYTES_MAX, VALUE_NAME_BYTES_MAX, ValueKey, Version, Versioned,
};
pub use state_model::{MemoryTables, StateModel, StateTables, StoredActor, StoredLock};

/// Completion callback of a store request, called exactly once. It runs on a store thread, or inline if the store
/// rejects the request, and must not block.
pub type Done<Reply, Error> = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

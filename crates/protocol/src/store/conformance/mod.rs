//! Conformance suite for implementations of the store traits: scripts of requests and expected replies, as data.
//!
//! Versions, revisions and leases in a script are symbolic names: the first reply that carries one binds it to the
//! implementation's number. Later uses must match that binding, and growing names stand for growing numbers. So a
//! script runs over a store that assigns its own numbers and has been used before.

mod coordination;
mod coordination_scripts;
mod names;
mod state;
mod state_scripts;

pub use coordination::{CoordinationModelSubject, CoordinationScript, CoordinationStep, CoordinationSubject};
pub use coordination_scripts::coordination_scripts;
pub use state::{StateModelSubject, StateScript, StateStep, StateSubject};
pub use state_scripts::state_scripts;

/// An implementation deviated from a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("script `{script}`, step {step}: expected {expected}, got {actual}")]
pub struct Mismatch {
    /// The script.
    pub script: &'static str,
    /// The step, counted from 1.
    pub step: usize,
    /// The result the script expects.
    pub expected: String,
    /// The actual result.
    pub actual: String,
}

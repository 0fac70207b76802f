//! What any implementation of the traits must do, as data: scripts of requests and expected replies.
//!
//! The versions, revisions and leases in a script are names, not numbers: the first reply that carries one binds it, and
//! from then on the implementation must mean the same by it. Names that grow stand for numbers that grow. So a script
//! runs over a store that gives out its own numbers and has been used before.

mod coordination;
mod coordination_scripts;
mod names;
mod state;
mod state_scripts;

pub use coordination::{CoordinationModelSubject, CoordinationScript, CoordinationStep, CoordinationSubject};
pub use coordination_scripts::coordination_scripts;
pub use state::{StateModelSubject, StateScript, StateStep, StateSubject};
pub use state_scripts::state_scripts;

/// An implementation did not do what a script says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("script `{script}`, step {step}: expected {expected}, got {actual}")]
pub struct Mismatch {
    /// The script.
    pub script: &'static str,
    /// The step, counted from 1.
    pub step: usize,
    /// What the script says.
    pub expected: String,
    /// What happened.
    pub actual: String,
}

//! Deterministic simulator for Elastin's protocols: virtual time, a faulty network, crashing processes, and a checker
//! for every invariant.
//!
//! It drives the same types as a real node ([`elastin_protocol::Node`] and
//! [`elastin_protocol::membership::Membership`]); the protocol itself is not modelled. A seed determines everything:
//! [`run()`] with the same seed and options is reproducible to the last bit.

mod check;
mod clock;
mod delays;
mod drain;
mod host;
mod log;
mod network;
mod options;
mod random;
mod report;
mod run;
mod service;
mod show;
mod world;

pub use check::Violation;
pub use delays::{Delays, count_delays};
pub use drain::{Drain, empty_a_server};
pub use log::Line;
pub use options::{Faults, Options, options_of_seed};
pub use report::Report;
pub use run::{MoveScenario, crash_in_a_move, run, run_traced};

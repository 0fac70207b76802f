//! Deterministic simulator for Elastin's protocols: virtual time, a network and processes that fail, and checkers for
//! every promise.
//!
//! It drives the very types that a real node drives ([`elastin_protocol::Node`] and
//! [`elastin_protocol::membership::Membership`]); nothing of the protocol is modelled. One
//! seed decides everything: [`run`] with the same seed and options does the same, to the last bit.

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

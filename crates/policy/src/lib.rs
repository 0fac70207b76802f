//! The elasticity policy language (EPL): parser, checker, evaluation.
//!
//! ```text
//! text ── parse ──► syntax ── compile(schema) ──► Policy ── evaluate(snapshot) ──► Fired
//! ```

mod action;

pub use action::{Action, Balance, Bound, Fired, Observed};

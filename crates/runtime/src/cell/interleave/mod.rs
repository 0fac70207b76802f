//! Interleaved turns: `async` handlers with `&self` that run beside each other while they wait.

mod inline;
pub(crate) mod state;
mod worker;

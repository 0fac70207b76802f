//! Stores in local files (redb), durable before a write is acknowledged. One commit covers all queued requests.
//!
//! ```text
//!   requests ──► worker ──► batch ──► model of elastin-protocol over redb tables ──► commit (fsync) ──► replies
//! ```
//!
//! Each store has its own file and thread, so that a slow write of state does not delay a lease. Every row has a
//! checksum: a damaged row fails only the requests that need it.

mod coordination;
mod file;
mod row;
mod state;
mod state_tables;

pub use coordination::EmbeddedCoordination;
pub use file::OpenError;
pub use state::EmbeddedState;

#[cfg(test)]
mod fault_tests;

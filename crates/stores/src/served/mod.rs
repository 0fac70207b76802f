//! Another process's stores over TCP: the supervisor of an embedded cluster serves its own to the nodes.
//!
//! ```text
//!   node: StoreClient ── Hello, then requests (pipelined, numbered) ──► supervisor: serve(listener, state, coordination)
//!                     ◄── Welcome, then replies and watch batches ────
//! ```
//!
//! Plain text, so only over the loopback interface, and only between processes that have the same
//! [secret](crate::secret). A client that lost its connection takes its session up again, and
//! the server makes sure first that nothing of the old connection is applied any more: requests of one client are never
//! reordered by a reconnect.

mod client;
mod client_state;
mod connection;
mod server;
mod wire;

pub use client::{ConnectError, StoreClient};
pub use server::{ServeError, Server, serve};

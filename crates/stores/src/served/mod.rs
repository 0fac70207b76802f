//! The stores of another process over TCP: the supervisor of an embedded cluster serves its own to the nodes.
//!
//! ```text
//!   node: StoreClient ── Hello, then requests (pipelined, numbered) ──► supervisor: serve(listener, state, coordination)
//!                     ◄── Welcome, then replies and watch batches ────
//! ```
//!
//! The connection is not encrypted, so it is limited to the loopback interface and to processes with the same
//! [secret](crate::secret). A client that lost its connection resumes its session. The server first makes sure that
//! nothing of the old connection is applied any more, so a reconnect never reorders the requests of a client.

mod client;
mod client_state;
mod connection;
mod server;
mod wire;

pub use client::{ConnectError, StoreClient};
pub use server::{ServeError, Server, serve};

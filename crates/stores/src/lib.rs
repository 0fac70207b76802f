//! Implementations of the two traits by which Elastin keeps things outside its nodes,
//! [`StateStore`](elastin_protocol::store::StateStore) and [`Coordination`](elastin_protocol::store::Coordination):
//!
//! - [`memory`]: for tests and for clusters that may forget;
//! - [`embedded`]: files on this machine, durable before a write is acknowledged;
//! - [`served`]: another process's stores, over TCP;
//! - `etcd` (feature `etcd`): coordination by an etcd cluster;
//! - `postgres` (feature `postgres`): state in a PostgreSQL server.
//!
//! The meaning of the requests is not here but in the models of `elastin-protocol`: memory and embedded stores run a model
//! on a thread of their own, a served store sends the requests to such a one; the others are held to the models by the
//! conformance scripts. Nothing here knows actors.

#[cfg(test)]
#[path = "../tests/stores/blocking.rs"]
mod blocking;
mod call;
mod coordination_engine;
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
mod keys;
mod local_coordination;
mod measured;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod secret;
pub mod served;
mod state_engine;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod tls;
mod watchers;
mod worker;

pub use call::{CoordinationExt, StateStoreExt, call_with_retries};
pub use measured::{MeasuredState, StoreMeasures, TIMES as STORE_TIMES};
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub use tls::StoreTls;

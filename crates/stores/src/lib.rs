//! Implementations of [`StateStore`](elastin_protocol::store::StateStore) and
//! [`Coordination`](elastin_protocol::store::Coordination), the two storage traits of Elastin:
//!
//! - [`memory`]: for tests and for clusters that may lose their data;
//! - [`embedded`]: local files, durable before a write is acknowledged;
//! - [`served`]: the stores of another process, over TCP;
//! - `etcd` (feature `etcd`): coordination by an etcd cluster;
//! - `postgres` (feature `postgres`): state in a PostgreSQL server.
//!
//! The models of `elastin-protocol` define the semantics of every request. Memory and embedded stores run a model on a
//! thread of their own, and a served store forwards requests to one of them. The conformance scripts check the others
//! against the models. This crate does not depend on actors.

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

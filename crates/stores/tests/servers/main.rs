//! The stores on real etcd and PostgreSQL servers: conformance, and servers that are gone, slow or restarted.

#[path = "../stores/blocking.rs"]
mod blocking;
mod etcd;
mod postgres;

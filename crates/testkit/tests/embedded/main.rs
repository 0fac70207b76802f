//! Embedded clusters of server processes.

mod client;
mod long_turns;
mod metrics;
mod reminders;
mod schema;
mod start;
mod untrusted_peers;

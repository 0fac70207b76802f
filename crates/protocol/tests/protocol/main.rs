//! The state machines from outside: nodes against frames and events of tests, and reminders over an in-memory store.

mod common;
mod eviction;
mod malformed_frames;
mod move_meets_grant;
mod placement;
mod reminders;
mod requests;
mod slow_peer;

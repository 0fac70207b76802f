//! The clock of a process, and sleeping on it.
//!
//! A process has one clock: the system's monotonic one. A test may use a virtual clock, shared by all members of an
//! in-process cluster, that it can advance. Every task that waits on a virtual clock registers with it, as a
//! [`Sleeper`] or through [`Sleeps`]. The clock wakes them when it is advanced, and knows the next due time and whether
//! all due work is done.
//!
//! Timeouts of external operations, such as opening a connection, do not use this clock.

mod clock;
mod sleeper;
mod virtual_time;

pub use clock::Clock;
pub use sleeper::Sleeper;
pub use virtual_time::{SleepState, Sleeps};

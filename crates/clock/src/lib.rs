//! The clock of a process, and those who sleep on it.
//!
//! A process has one clock: the system's monotonic one. A test may have a clock that it can also move ahead, together with all
//! members of a cluster that are in its process. For that everybody who waits for a time on it is known to it, as a
//! [`Sleeper`] or by [`Sleeps`], so that they are woken when time has moved, and so that it is known what is due next and
//! whether everybody has done what was due.
//!
//! What concerns the outside world only, such as how long a connection may take to open, is not on this clock.

mod clock;
mod sleeper;
mod virtual_time;

pub use clock::Clock;
pub use sleeper::Sleeper;
pub use virtual_time::{SleepState, Sleeps};

//! Clusters inside one process, as an application's own tests use them.

mod fake_time;
mod real_time;

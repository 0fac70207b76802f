//! The commands of `elastin`, run as processes.

mod cluster;
mod demo;
mod policy;

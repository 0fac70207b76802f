//! The policy language from outside: policies, snapshots and files in, diagnostics, firings and text out.

mod agreement;
mod analysis;
mod bad_input;
mod common;
mod diagnostics;
mod documentation;
mod explain;
mod format;
mod paper;
mod policies;
mod policy;

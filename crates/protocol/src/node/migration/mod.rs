//! Migration of activations: a source stages the state at a target, commits in the directory and forwards the rest.

mod group;
pub(super) mod queue;
mod release;
pub(super) mod settle;
mod source;
mod target;

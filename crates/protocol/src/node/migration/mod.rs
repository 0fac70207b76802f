//! Migration of activations: the source stages the state at the target, the directory commits, and the queue follows.

mod group;
pub(super) mod queue;
mod release;
pub(super) mod settle;
mod source;
mod target;

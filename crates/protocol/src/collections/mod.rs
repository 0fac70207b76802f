//! Maps that hold millions of small entries in little memory.

pub(crate) mod actor_map;
pub(crate) mod compact_map;
mod compact_part;

//! Maps that hold millions of small entries in little memory.

pub(crate) mod actor_map;
pub(crate) mod compact_map;
pub(crate) mod compact_part;
pub(crate) mod host_map;
pub(crate) mod key_map;
pub(crate) mod positions;

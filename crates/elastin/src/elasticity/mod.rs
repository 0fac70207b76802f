//! Drivers of the elasticity managers.

pub(crate) mod control;
pub(crate) mod global;
pub(crate) mod placements;

//! Drivers of the elasticity managers: frames between them, and the supervisor's global manager.

pub(crate) mod control;
pub(crate) mod global;

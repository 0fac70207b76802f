//! How much was needed and how much was there, over time: elasticity metrics come from it.

use elastin_types::{PerResource, Time};
use serde::{Deserialize, Serialize};

/// What the servers that a global manager sees were asked for, and what they had.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// When, on the clock of the manager.
    pub at: Time,
    /// How many servers.
    pub servers: u32,
    /// What was asked for: of CPU time, demand, which can be more than was used.
    pub required: PerResource<f64>,
    /// What there was, as far as it is known.
    pub provided: PerResource<f64>,
}

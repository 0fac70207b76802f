//! Required and provided capacity over time, the source of elasticity metrics.

use elastin_types::{PerResource, Time};
use serde::{Deserialize, Serialize};

/// Required and provided capacity of the servers that a global manager sees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Time of the measurement, on the manager's clock.
    pub at: Time,
    /// Number of servers.
    pub servers: u32,
    /// Required capacity; for CPU the demand, which can exceed the use.
    pub required: PerResource<f64>,
    /// Provided capacity, as far as known.
    pub provided: PerResource<f64>,
}

//! Polling intervals of a slot's owner.

use std::time::Duration;

/// Polling intervals of a slot's owner.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Period of the sweep over all slots. It finds rows whose note was lost or sent to an earlier owner.
    pub sweep_every: Duration,
    /// The pause between two scans of a sweep, so that many reminders far in the future cost little.
    pub sweep_pause: Duration,
    /// Longest time between two reads of the wall clock, which may be adjusted.
    pub clock_look: Duration,
}

impl Pace {
    /// Rare polling, for simulations with a monotonic wall clock that cover long spans of virtual time.
    pub const RARE: Pace = Pace {
        sweep_every: Duration::from_secs(24 * 3600),
        sweep_pause: Duration::ZERO,
        clock_look: Duration::MAX,
    };
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            sweep_every: Duration::from_secs(10),
            sweep_pause: Duration::from_millis(5),
            clock_look: Duration::from_secs(1),
        }
    }
}

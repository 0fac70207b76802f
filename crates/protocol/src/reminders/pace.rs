//! How often a slot's owner looks without being told to.

use std::time::Duration;

/// How often a slot's owner looks without being told to.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often all slots are looked through, for rows that nobody has noted: the message was lost, or the owner has changed.
    pub sweep_every: Duration,
    /// The pause between two scans of a sweep, so that many reminders far in the future cost little.
    pub sweep_pause: Duration,
    /// How long until the wall clock is looked at again at most, because it may be set.
    pub clock_look: Duration,
}

impl Pace {
    /// Where hardly anything is ever missed: for a test with a clock that nobody sets, in which a day is made of what happens.
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

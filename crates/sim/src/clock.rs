//! A process's clock: it runs a little too fast or too slow, and may jump ahead. It never goes back, because processes read
//! a monotonic clock.

use std::time::Duration;

use elastin_types::Time;

use crate::random::Random;

/// What a clock that runs right counts in a real second.
const RIGHT_PPM: u64 = 1_000_000;
/// How much faster or slower a clock may run. Real ones differ by a hundredth of that; leases must bear it.
const DRIFT_PPM_MAX: u64 = 40_000;

/// One process's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    real: Time,
    local: Time,
    ppm: u64,
}

impl Clock {
    /// A clock that is right.
    pub(crate) fn exact(real: Time) -> Self {
        Self {
            real,
            local: real,
            ppm: RIGHT_PPM,
        }
    }

    /// A clock with an origin and a speed of its own.
    pub(crate) fn drifting(real: Time, random: &mut Random) -> Self {
        Self {
            real,
            local: Time(1 + random.below(1_000_000_000_000)),
            ppm: RIGHT_PPM - DRIFT_PPM_MAX + random.below(2 * DRIFT_PPM_MAX + 1),
        }
    }

    /// What it shows.
    pub(crate) fn local(&self, real: Time) -> Time {
        let passed = u128::from(real.0 - self.real.0) * u128::from(self.ppm) / u128::from(RIGHT_PPM);
        Time(self.local.0 + passed as u64)
    }

    /// When it will show this; the moment from which on it counts, if that is past.
    pub(crate) fn real(&self, local: Time) -> Time {
        let left = local.0.saturating_sub(self.local.0);
        let real = (u128::from(left) * u128::from(RIGHT_PPM)).div_ceil(u128::from(self.ppm));
        Time(self.real.0.saturating_add(u64::try_from(real).unwrap_or(u64::MAX)))
    }

    /// It jumps ahead.
    pub(crate) fn jump(&mut self, real: Time, by: Duration) {
        self.local = self.local(real) + by;
        self.real = real;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_again() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let mut clock = Clock::drifting(Time(5_000), &mut random);
            clock.jump(Time(7_000), Duration::from_nanos(random.below(1_000_000)));
            let local = clock.local(Time(7_000)) + Duration::from_nanos(random.below(1_000_000_000));
            let real = clock.real(local);
            assert!(clock.local(real) >= local && clock.local(Time(real.0 - 1)) <= local);
        }
    }
}

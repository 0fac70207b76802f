//! A process's clock: it runs slightly too fast or too slow, and may jump ahead. It never runs backwards, because
//! processes read a monotonic clock.

use std::time::Duration;

use elastin_types::Time;

use crate::random::Random;

/// The rate of an exact clock, in parts per million.
const EXACT_PPM: u64 = 1_000_000;
/// The largest drift. Real clocks differ by a hundredth of that; leases must tolerate it.
const DRIFT_PPM_MAX: u64 = 40_000;

/// One process's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    real: Time,
    local: Time,
    ppm: u64,
}

impl Clock {
    /// An exact clock.
    pub(crate) fn exact(real: Time) -> Self {
        Self {
            real,
            local: real,
            ppm: EXACT_PPM,
        }
    }

    /// A clock with its own origin and rate.
    pub(crate) fn drifting(real: Time, random: &mut Random) -> Self {
        Self {
            real,
            local: Time(1 + random.below(1_000_000_000_000)),
            ppm: EXACT_PPM - DRIFT_PPM_MAX + random.below(2 * DRIFT_PPM_MAX + 1),
        }
    }

    /// Its reading at a real time.
    pub(crate) fn local(&self, real: Time) -> Time {
        let passed = u128::from(real.0 - self.real.0) * u128::from(self.ppm) / u128::from(EXACT_PPM);
        Time(self.local.0 + passed as u64)
    }

    /// The real time at which it shows a local time, or its reference point if that is past.
    pub(crate) fn real(&self, local: Time) -> Time {
        let left = local.0.saturating_sub(self.local.0);
        let real = (u128::from(left) * u128::from(EXACT_PPM)).div_ceil(u128::from(self.ppm));
        Time(self.real.0.saturating_add(u64::try_from(real).unwrap_or(u64::MAX)))
    }

    /// Jumps ahead.
    pub(crate) fn jump(&mut self, real: Time, by: Duration) {
        self.local = self.local(real) + by;
        self.real = real;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_inverts_local() {
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

//! A moment in five bytes, so that one fits into every cell.

use std::sync::atomic::{AtomicU8, Ordering};

use elastin_types::Time;

/// How many bits of the time are left out: a moment is exact to a quarter of a millisecond.
const LEFT_OUT: u32 = 18;
/// How many bytes of the time are kept.
const KEPT: usize = 5;
/// The last moment that can be kept, nine years after the clock was started: later ones are kept as this one.
const LAST: u64 = (1 << (KEPT * 8)) - 1;

/// A moment. Atomics, because it lies beside the lock under which it is used.
#[derive(Debug, Default)]
pub(crate) struct CoarseInstant([AtomicU8; KEPT]);

impl CoarseInstant {
    pub(crate) fn set(&self, Time(nanoseconds): Time) {
        let kept = (nanoseconds >> LEFT_OUT).min(LAST).to_le_bytes();
        for (ours, byte) in self.0.iter().zip(kept) {
            ours.store(byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Time {
        let mut kept = [0; size_of::<u64>()];
        for (byte, ours) in kept.iter_mut().zip(&self.0) {
            *byte = ours.load(Ordering::Relaxed);
        }
        Time(u64::from_le_bytes(kept) << LEFT_OUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exact_to_a_quarter_of_a_millisecond_for_years() {
        const YEARS: u64 = 9 * 365 * 24 * 3600 * 1_000_000_000;
        let since = CoarseInstant::default();
        for nanoseconds in [0, 1, (1 << 18) - 1, 1 << 18, 0x0123_4567_89ab_cdef, YEARS] {
            since.set(Time(nanoseconds));
            assert_eq!(since.get(), Time(nanoseconds & !((1 << 18) - 1)));
        }
        since.set(Time(u64::MAX));
        assert!(since.get() >= Time(YEARS));
    }
}

//! A timestamp in five bytes, small enough for every cell.

use std::sync::atomic::{AtomicU8, Ordering};

use elastin_types::Time;

/// How many low bits are dropped: the resolution is a quarter of a millisecond.
const DROPPED_BITS: u32 = 18;
/// How many bytes are kept.
const KEPT_BYTES: usize = 5;
/// The last representable time, nine years after the clock's start: later times saturate.
const LAST: u64 = (1 << (KEPT_BYTES * 8)) - 1;

/// A coarse timestamp. Atomic, because it is stored beside the lock that guards it.
#[derive(Debug, Default)]
pub(crate) struct CoarseInstant([AtomicU8; KEPT_BYTES]);

impl CoarseInstant {
    pub(crate) fn set(&self, Time(nanoseconds): Time) {
        let kept = (nanoseconds >> DROPPED_BITS).min(LAST).to_le_bytes();
        for (ours, byte) in self.0.iter().zip(kept) {
            ours.store(byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Time {
        let mut kept = [0; size_of::<u64>()];
        for (byte, ours) in kept.iter_mut().zip(&self.0) {
            *byte = ours.load(Ordering::Relaxed);
        }
        Time(u64::from_le_bytes(kept) << DROPPED_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolution_is_a_quarter_millisecond_for_nine_years() {
        const YEARS: u64 = 9 * 365 * 24 * 3600 * 1_000_000_000;
        let instant = CoarseInstant::default();
        for nanoseconds in [0, 1, (1 << 18) - 1, 1 << 18, 0x0123_4567_89ab_cdef, YEARS] {
            instant.set(Time(nanoseconds));
            assert_eq!(instant.get(), Time(nanoseconds & !((1 << 18) - 1)));
        }
        instant.set(Time(u64::MAX));
        assert!(instant.get() >= Time(YEARS));
    }
}

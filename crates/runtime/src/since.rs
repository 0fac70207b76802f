//! A moment in seven bytes, so that one fits into every mailbox.

use elastin_types::Time;

/// Seven bytes of nanoseconds would last two years; without the lowest byte they last as long as [`Time`] itself does.
const LEFT_OUT: usize = 1;

/// A moment, exact to 256 nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since([u8; size_of::<u64>() - LEFT_OUT]);

impl From<Time> for Since {
    fn from(Time(nanoseconds): Time) -> Self {
        let [_, high @ ..] = nanoseconds.to_le_bytes();
        Self(high)
    }
}

impl From<Since> for Time {
    fn from(Since(high): Since) -> Self {
        let mut nanoseconds = [0; size_of::<u64>()];
        nanoseconds[LEFT_OUT..].copy_from_slice(&high);
        Self(u64::from_le_bytes(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exact_to_256_nanoseconds_at_any_time() {
        for nanoseconds in [0, 255, 256, 257, 0x0123_4567_89ab_cdef, u64::MAX] {
            let Time(kept) = Since::from(Time(nanoseconds)).into();
            assert_eq!(kept, nanoseconds & !255);
        }
    }
}

//! Adaptive backoff for an optimistic fast path.
//!
//! A connection reader runs tasks inline, and a reader busy-polls before it parks. Each of
//! these may fail and waste time; after failures the fast path is skipped for a while.

use crate::tuning::{SKIPS_IF_SEVERE, SKIPS_MAX};

/// Adaptive backoff: decides whether the next attempt is skipped.
#[derive(Debug, Default)]
pub struct AdaptiveBackoff {
    /// How many attempts are still to be skipped.
    skips: u32,
    /// How many were skipped after the last failure; successes since then halve it.
    last_skips: u32,
}

impl AdaptiveBackoff {
    /// No failures yet.
    pub const NEW: Self = Self {
        skips: 0,
        last_skips: 0,
    };

    /// Whether to skip the next attempt.
    pub fn should_skip(&mut self) -> bool {
        let skip = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        skip
    }

    /// Records a failure.
    pub fn failure(&mut self) {
        self.last_skips = (self.last_skips * 2).clamp(1, SKIPS_MAX);
        self.skips = self.last_skips;
    }

    /// Records a failure that slowed down others.
    pub fn severe_failure(&mut self) {
        self.last_skips = (self.last_skips * 4).clamp(SKIPS_IF_SEVERE, SKIPS_MAX);
        self.skips = self.last_skips;
    }

    /// Records a success.
    pub fn success(&mut self) {
        self.last_skips /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts are skipped in a row.
    fn count_skips(backoff: &mut AdaptiveBackoff) -> usize {
        std::iter::repeat_with(|| backoff.should_skip())
            .take_while(|skip| *skip)
            .count()
    }

    #[test]
    fn skips_double_with_failures_and_shrink_with_successes() {
        let mut backoff = AdaptiveBackoff::default();
        assert_eq!(count_skips(&mut backoff), 0);
        let skips = [(); 8].map(|()| {
            backoff.failure();
            count_skips(&mut backoff)
        });
        assert_eq!(skips, [1, 2, 4, 8, 16, 32, 64, 64]);
        for _ in 0..7 {
            backoff.success();
        }
        backoff.failure();
        assert_eq!(count_skips(&mut backoff), 1, "successes must reset the backoff");
        let skips = [(); 3].map(|()| {
            backoff.severe_failure();
            count_skips(&mut backoff)
        });
        assert_eq!(skips, [8, 32, 64]);
    }
}

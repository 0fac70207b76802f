//! Whether something that may go wrong is tried, or left because it went wrong before.
//!
//! Who calls an actor that is busy waits for it, or queues at once because it has waited in vain. The reader of a connection runs
//! errands itself, or leaves them to the workers because others were slow. Who waits for mail looks for it first, or sleeps at once
//! because it has looked in vain.

/// So many are left at most after one that went wrong, because the next ones are likely to go the same way. After the first it is
/// one, and twice as many after each that follows: it may only have been the machine that was busy.
const LEFT_MAX: u32 = 64;

/// So many are left after the first one that did harm to others, which is worse; and four times as many after each that follows.
const LEFT_IF_HARMFUL: u32 = 8;

/// How much is left.
#[derive(Debug, Default)]
pub struct AdaptiveBackoff {
    /// So many, from the next one on.
    left: u32,
    /// So many were left after the last that went wrong; fewer if some went well since.
    left_before: u32,
}

impl AdaptiveBackoff {
    /// Nothing has gone wrong yet.
    pub const NEW: Self = Self {
        left: 0,
        left_before: 0,
    };

    /// Whether the next one is left.
    pub fn should_skip(&mut self) -> bool {
        let leaves = self.left > 0;
        self.left = self.left.saturating_sub(1);
        leaves
    }

    /// One went wrong.
    pub fn failure(&mut self) {
        self.left_before = (self.left_before * 2).clamp(1, LEFT_MAX);
        self.left = self.left_before;
    }

    /// One went wrong, and did harm to others.
    pub fn severe_failure(&mut self) {
        self.left_before = (self.left_before * 4).clamp(LEFT_IF_HARMFUL, LEFT_MAX);
        self.left = self.left_before;
    }

    /// One went well.
    pub fn success(&mut self) {
        self.left_before /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are left before one is tried.
    fn left_by(backoff: &mut AdaptiveBackoff) -> usize {
        std::iter::repeat_with(|| backoff.should_skip())
            .take_while(|leaves| *leaves)
            .count()
    }

    #[test]
    fn one_that_goes_wrong_costs_little_and_after_many_most_are_left() {
        let mut backoff = AdaptiveBackoff::default();
        assert_eq!(left_by(&mut backoff), 0);
        let left = [(); 8].map(|()| {
            backoff.failure();
            left_by(&mut backoff)
        });
        assert_eq!(left, [1, 2, 4, 8, 16, 32, 64, 64]);
        for _ in 0..7 {
            backoff.success();
        }
        backoff.failure();
        assert_eq!(left_by(&mut backoff), 1, "it is forgotten in time");
        let left = [(); 3].map(|()| {
            backoff.severe_failure();
            left_by(&mut backoff)
        });
        assert_eq!(left, [8, 32, 64]);
    }
}

//! Whether the reader of a connection runs errands itself, or leaves them to the workers because others were slow.

/// So many errands go to the workers at most after a slow one, because those of the same peer are likely to be slow too. After
/// the first it is one, and twice as many after each that follows: it may only have been the machine that was busy.
const LEFT_MAX: u32 = 64;

/// So many go to the workers after the first one that held others up, which is worse; and four times as many after each that
/// follows.
const LEFT_IF_HELD_UP: u32 = 8;

/// How much a reader leaves to the workers.
#[derive(Debug, Default)]
pub(super) struct Caution {
    /// So many errands, from the next one on.
    left: u32,
    /// So many were left after the last slow one; fewer if there were quick ones since.
    left_before: u32,
}

impl Caution {
    /// Whether the next errand is left to the workers.
    pub(super) fn leaves_next(&mut self) -> bool {
        let leaves = self.left > 0;
        self.left = self.left.saturating_sub(1);
        leaves
    }

    /// An errand took long.
    pub(super) fn was_slow(&mut self) {
        self.left_before = (self.left_before * 2).clamp(1, LEFT_MAX);
        self.left = self.left_before;
    }

    /// An errand took so long that others had to read on.
    pub(super) fn was_held_up(&mut self) {
        self.left_before = (self.left_before * 4).clamp(LEFT_IF_HELD_UP, LEFT_MAX);
        self.left = self.left_before;
    }

    /// An errand took no longer than waking a worker would have.
    pub(super) fn was_quick(&mut self) {
        self.left_before /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many errands are left to the workers before the reader runs one itself.
    fn left_by(caution: &mut Caution) -> usize {
        std::iter::repeat_with(|| caution.leaves_next())
            .take_while(|leaves| *leaves)
            .count()
    }

    #[test]
    fn one_slow_errand_costs_little_and_many_go_to_the_workers() {
        let mut caution = Caution::default();
        assert_eq!(left_by(&mut caution), 0);
        let left = [(); 8].map(|()| {
            caution.was_slow();
            left_by(&mut caution)
        });
        assert_eq!(left, [1, 2, 4, 8, 16, 32, 64, 64]);
        for _ in 0..7 {
            caution.was_quick();
        }
        caution.was_slow();
        assert_eq!(left_by(&mut caution), 1, "it is forgotten in time");
        let left = [(); 3].map(|()| {
            caution.was_held_up();
            left_by(&mut caution)
        });
        assert_eq!(left, [8, 32, 64]);
    }
}

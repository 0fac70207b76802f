//! Random numbers from an injected seed, so that runs are reproducible.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, and good enough for picking among servers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the items, uniformly chosen; `None` if there are none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(items.len()).ok().filter(|count| *count > 0)?;
        let index = (u128::from(self.next()) * u128::from(count)) >> 64;
        items.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_follow_the_seed_and_reach_all_items() {
        let items: Vec<u32> = (0..7).collect();
        let picks = |seed| {
            let mut random = Random::new(seed);
            (0..70).filter_map(|_| random.pick(&items).copied()).collect::<Vec<_>>()
        };
        assert_eq!(picks(1), picks(1));
        assert_ne!(picks(1), picks(2));
        assert!(items.iter().all(|item| picks(3).contains(item)));
        assert_eq!(Random::new(1).pick::<u32>(&[]), None);
    }
}

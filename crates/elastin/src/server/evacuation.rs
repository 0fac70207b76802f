//! Emptying a server: which of its actors go next, so many at a time.

use std::collections::BTreeSet;

use elastin_types::ActorId;

/// How many actors leave at a time: as many as the protocol moves at once.
const UNDER_WAY_MAX: usize = 32;

/// The actors that have to leave. Which they are is looked up anew when all that were known have been tried: others may
/// have come meanwhile, and some may have stayed.
#[derive(Debug, Default)]
pub(super) struct Evacuation {
    left: Vec<ActorId>,
    under_way: BTreeSet<ActorId>,
}

impl Evacuation {
    /// The actors to move now, given a way to find out who is there.
    pub(super) fn next(&mut self, everybody: impl FnOnce() -> Vec<ActorId>) -> Vec<ActorId> {
        if self.left.is_empty() && self.under_way.is_empty() {
            self.left = everybody();
        }
        let count = UNDER_WAY_MAX.saturating_sub(self.under_way.len()).min(self.left.len());
        let next = self.left.split_off(self.left.len() - count);
        self.under_way.extend(next.iter().cloned());
        next
    }

    /// A move has ended, or could not begin.
    pub(super) fn ended(&mut self, actor: &ActorId) {
        self.under_way.remove(actor);
    }

    /// Whether nobody is known to be left.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty() && self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::ActorType;

    use super::*;

    fn actors(keys: std::ops::Range<u64>) -> Vec<ActorId> {
        keys.map(|key| ActorId::new(ActorType::of("Folder"), key)).collect()
    }

    #[test]
    fn so_many_go_at_a_time_and_those_who_stay_are_tried_again() {
        let mut evacuation = Evacuation::default();
        let first = evacuation.next(|| actors(0..40));
        assert_eq!(first.len(), UNDER_WAY_MAX);
        assert_eq!(evacuation.next(|| panic!("not all have been tried")), []);
        evacuation.ended(&first[0]);
        assert_eq!(evacuation.next(|| panic!("not all have been tried")).len(), 1);
        for actor in &first {
            evacuation.ended(actor);
        }
        for actor in evacuation.next(|| panic!("not all have been tried")) {
            evacuation.ended(&actor);
        }
        evacuation.ended(&actors(7..8)[0]);
        let left: Vec<ActorId> = evacuation.under_way.iter().cloned().collect();
        for actor in left {
            evacuation.ended(&actor);
        }
        assert!(evacuation.is_done());
        assert_eq!(evacuation.next(|| actors(3..5)).len(), 2);
        assert!(!evacuation.is_done());
    }
}

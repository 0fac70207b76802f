//! From whom nobody may take over yet.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::{NodeId, Time};

/// Between two looks at the clock at most this part of a hold counts as passed. A clock that jumps, or a process that was
/// stopped and can't send for how long, only makes a hold longer.
const STEPS_PER_HOLD: u32 = 8;

/// Members whose lease has ended and from whom nobody may take over yet, as one member that may publish views sees it.
#[derive(Debug, Default)]
pub(super) struct Hold {
    held: BTreeMap<NodeId, Held>,
    looked: Time,
}

#[derive(Debug)]
struct Held {
    left: Duration,
    step: Duration,
}

impl Hold {
    /// A member's lease has ended, seen now. It may have been ended early, so the member may act for up to its whole time
    /// to live. The hold of a member that is held already does not begin anew.
    pub(super) fn begin(&mut self, now: Time, node: NodeId, ttl: Duration) {
        self.pass(now);
        let step = ttl / STEPS_PER_HOLD;
        self.held.entry(node).or_insert(Held { left: ttl, step });
    }

    /// Whether nobody may take over from this member yet. What is not held has never been seen to end.
    pub(super) fn is_over(&self, node: NodeId) -> bool {
        self.held.get(&node).is_some_and(|held| held.left.is_zero())
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, now: Time) {
        let passed = now.since(self.looked);
        self.looked = self.looked.max(now);
        for held in self.held.values_mut() {
            held.left = held.left.saturating_sub(passed.min(held.step));
        }
    }

    /// Forgets the members that need not be held any longer.
    pub(super) fn keep_only(&mut self, needed: impl Fn(NodeId) -> bool) {
        self.held.retain(|node, _| needed(*node));
    }

    /// When [`Hold::pass`] is wanted next.
    pub(super) fn next_timer(&self) -> Option<Time> {
        let waiting = self.held.values().filter(|held| !held.left.is_zero());
        waiting.map(|held| self.looked + held.left.min(held.step)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(800);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn wait_until_over(hold: &mut Hold, node: NodeId) -> Time {
        while !hold.is_over(node) {
            let next = hold.next_timer().expect("it waits for time to pass");
            hold.pass(next);
        }
        hold.looked
    }

    #[test]
    fn a_member_is_held_for_its_whole_time_to_live() {
        let mut hold = Hold::default();
        hold.begin(at(1000), NodeId(7), TTL);
        hold.pass(at(1100));
        hold.begin(at(1200), NodeId(7), TTL);
        assert_eq!(wait_until_over(&mut hold, NodeId(7)), at(1800));
        assert_eq!(hold.next_timer(), None);
        assert!(!hold.is_over(NodeId(8)));
    }

    #[test]
    fn a_clock_that_jumps_ends_no_hold_early() {
        let mut hold = Hold::default();
        hold.begin(at(1000), NodeId(7), TTL);
        hold.pass(at(60_000));
        assert!(!hold.is_over(NodeId(7)));
        assert_eq!(wait_until_over(&mut hold, NodeId(7)), at(60_700));
    }

    #[test]
    fn who_is_not_needed_is_forgotten() {
        let mut hold = Hold::default();
        hold.begin(at(0), NodeId(7), TTL);
        hold.keep_only(|_| false);
        assert_eq!(hold.next_timer(), None);
    }
}

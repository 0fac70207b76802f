//! Holds on members whose lease has ended but which may still act.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::{NodeId, Time};

/// Each clock read advances a hold by at most this fraction of it. A clock jump or a paused process can only
/// lengthen a hold.
const STEPS_PER_HOLD: u32 = 8;

/// Members whose lease has ended and whose slots may not be taken over yet, as seen by one potential publisher.
#[derive(Debug, Default)]
pub(super) struct Hold {
    held: BTreeMap<NodeId, HeldMember>,
    last_pass: Time,
}

#[derive(Debug)]
struct HeldMember {
    left: Duration,
    step: Duration,
}

impl Hold {
    /// Starts the hold of a member whose lease has ended. The lease may have been revoked early, so the member may act for
    /// up to its full time to live. An existing hold is not restarted.
    pub(super) fn begin(&mut self, now: Time, node: NodeId, ttl: Duration) {
        self.pass(now);
        let step = ttl / STEPS_PER_HOLD;
        self.held.entry(node).or_insert(HeldMember { left: ttl, step });
    }

    /// Whether the hold of this member has expired. False for a member without a hold.
    pub(super) fn is_over(&self, node: NodeId) -> bool {
        self.held.get(&node).is_some_and(|held| held.left.is_zero())
    }

    /// Advances all holds to this time.
    pub(super) fn pass(&mut self, now: Time) {
        let passed = now.since(self.last_pass);
        self.last_pass = self.last_pass.max(now);
        for held in self.held.values_mut() {
            held.left = held.left.saturating_sub(passed.min(held.step));
        }
    }

    /// Drops the holds of members that no longer need one.
    pub(super) fn keep_only(&mut self, needed: impl Fn(NodeId) -> bool) {
        self.held.retain(|node, _| needed(*node));
    }

    /// When [`Hold::pass`] is wanted next.
    pub(super) fn next_timer(&self) -> Option<Time> {
        let waiting = self.held.values().filter(|held| !held.left.is_zero());
        waiting.map(|held| self.last_pass + held.left.min(held.step)).min()
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
            let next = hold.next_timer().expect("an unexpired hold has a timer");
            hold.pass(next);
        }
        hold.last_pass
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
    fn unneeded_holds_are_dropped() {
        let mut hold = Hold::default();
        hold.begin(at(0), NodeId(7), TTL);
        hold.keep_only(|_| false);
        assert_eq!(hold.next_timer(), None);
    }
}

//! Deadlines of calls: by far the most frequent timers, and hardly one ever fires.
//!
//! Most calls have the same timeout, so their deadlines arrive in order and lie side by side in a queue. Insertion is a
//! push. Removal finds the deadline by bisection and only marks it. Deadlines that arrive out of order are kept in a
//! tree.

use std::collections::{BTreeSet, VecDeque};

use elastin_types::Time;

/// A shorter queue is not compacted: it costs next to nothing.
const TIDY_LENGTH_MIN: usize = 64;

/// An ordered set of deadlines, each with the sequence number of its call.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// In order. INVARIANT: the first one is wanted.
    queue: VecDeque<Deadline>,
    /// Number of removed deadlines in the queue.
    unwanted: usize,
    out_of_order: BTreeSet<(Time, u64)>,
}

#[derive(Debug)]
struct Deadline {
    at: Time,
    call: u64,
    wanted: bool,
}

impl Deadlines {
    /// Adds a deadline that is not in the set.
    pub(crate) fn insert(&mut self, at: Time, call: u64) {
        if self.queue.back().is_none_or(|last| (last.at, last.call) < (at, call)) {
            self.queue.push_back(Deadline { at, call, wanted: true });
        } else {
            self.out_of_order.insert((at, call));
        }
    }

    /// Removes a deadline if it is in the set.
    pub(crate) fn remove(&mut self, at: Time, call: u64) {
        // Fast path: calls are mostly answered in the order in which they were made.
        if self
            .queue
            .front()
            .is_some_and(|first| (first.at, first.call) == (at, call))
        {
            self.queue.pop_front();
            return self.tidy();
        }
        match self.queue.binary_search_by_key(&(at, call), |one| (one.at, one.call)) {
            Ok(position) if self.queue[position].wanted => {
                self.queue[position].wanted = false;
                self.unwanted += 1;
                self.tidy();
            }
            _ => drop(self.out_of_order.remove(&(at, call))),
        }
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Option<(Time, u64)> {
        let queued = self.queue.front().map(|first| (first.at, first.call));
        match (queued, self.out_of_order.first().copied()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Takes the earliest deadline.
    pub(crate) fn pop_first(&mut self) -> Option<(Time, u64)> {
        let first = self.first()?;
        self.remove(first.0, first.1);
        Some(first)
    }

    /// Drops removed deadlines at the front, or all of them if they are more than half.
    fn tidy(&mut self) {
        while self.queue.front().is_some_and(|first| !first.wanted) {
            self.queue.pop_front();
            self.unwanted -= 1;
        }
        if self.queue.len() >= TIDY_LENGTH_MIN && self.unwanted * 2 > self.queue.len() {
            self.queue.retain(|one| one.wanted);
            self.unwanted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_behave_as_an_ordered_set() {
        let (mut ours, mut theirs) = (Deadlines::default(), BTreeSet::new());
        let mut number = 1_u64;
        for step in 0..50_000_u64 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = number >> 33;
            match random % 8 {
                // In order, mostly.
                0..4 => {
                    let one = (Time(step), step);
                    ours.insert(one.0, one.1);
                    theirs.insert(one);
                }
                4 => {
                    let one = (Time(random % (step + 1)), step);
                    ours.insert(one.0, one.1);
                    theirs.insert(one);
                }
                5 => assert_eq!(ours.pop_first(), theirs.pop_first()),
                _ => {
                    // Any of them, and eventually not only the first ones.
                    let from = (Time(random % (step + 1)), 0);
                    let one = theirs.range(from..).next().copied().unwrap_or(from);
                    ours.remove(one.0, one.1);
                    theirs.remove(&one);
                }
            }
            assert_eq!(ours.first(), theirs.first().copied());
            let kept = ours.queue.len() + ours.out_of_order.len();
            assert!(
                kept <= 2 * theirs.len() + TIDY_LENGTH_MIN,
                "{kept} are kept for {}",
                theirs.len()
            );
        }
        while let Some(one) = ours.pop_first() {
            assert_eq!(Some(one), theirs.pop_first());
        }
        assert!(theirs.is_empty() && ours.queue.is_empty());
    }
}

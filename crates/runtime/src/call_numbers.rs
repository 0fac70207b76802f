//! Call numbers, unique within a runtime.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tuning::NUMBERS_PER_THREAD;

/// Distinguishes the runtimes of this process.
static RUNTIMES: AtomicU64 = AtomicU64::new(1);

/// The numbers that a thread has reserved and not used.
#[derive(Clone, Copy)]
struct Reserved {
    runtime: u64,
    next: u64,
    end: u64,
}

thread_local! {
    static RESERVED: Cell<Reserved> = const { Cell::new(Reserved { runtime: 0, next: 0, end: 0 }) };
}

/// Source of call numbers. They are unique but not in order, because each thread reserves a range.
pub(crate) struct CallNumbers {
    runtime: u64,
    next: AtomicU64,
}

impl CallNumbers {
    pub(crate) fn new() -> Self {
        Self {
            runtime: RUNTIMES.fetch_add(1, Ordering::Relaxed),
            next: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        let mut reserved = RESERVED.get();
        if reserved.runtime != self.runtime || reserved.next == reserved.end {
            let next = self.next.fetch_add(NUMBERS_PER_THREAD, Ordering::Relaxed);
            reserved = Reserved {
                runtime: self.runtime,
                next,
                end: next + NUMBERS_PER_THREAD,
            };
        }
        let number = reserved.next;
        reserved.next += 1;
        RESERVED.set(reserved);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_unique_across_threads_and_runtimes() {
        let (one, other) = (CallNumbers::new(), CallNumbers::new());
        let draw = || -> Vec<u64> {
            let mut drawn = Vec::new();
            for _ in 0..3000 {
                drawn.push(one.next());
                other.next();
            }
            drawn
        };
        let (mine, theirs) = std::thread::scope(|scope| {
            let thread = scope.spawn(draw);
            (draw(), thread.join().expect("the thread does not panic"))
        });
        let all: BTreeSet<u64> = mine.into_iter().chain(theirs).collect();
        assert_eq!(all.len(), 6000);
    }
}

//! Numbers for calls, unique within a runtime.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a thread takes at a time, so that threads rarely meet at the counter.
const NUMBERS_PER_THREAD: u64 = 1024;

/// Tells the runtimes of this process apart.
static RUNTIMES: AtomicU64 = AtomicU64::new(1);

/// The numbers that a thread has taken and not used.
#[derive(Clone, Copy)]
struct Taken {
    runtime: u64,
    next: u64,
    end: u64,
}

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { runtime: 0, next: 0, end: 0 }) };
}

/// Gives out numbers. They are unique, but not in order: each thread takes some at a time.
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
        let mut taken = TAKEN.get();
        if taken.runtime != self.runtime || taken.next == taken.end {
            let next = self.next.fetch_add(NUMBERS_PER_THREAD, Ordering::Relaxed);
            taken = Taken {
                runtime: self.runtime,
                next,
                end: next + NUMBERS_PER_THREAD,
            };
        }
        let number = taken.next;
        taken.next += 1;
        TAKEN.set(taken);
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
            (draw(), thread.join().expect("the thread ends well"))
        });
        let all: BTreeSet<u64> = mine.into_iter().chain(theirs).collect();
        assert_eq!(all.len(), 6000);
    }
}

//! Callers that spin briefly for a busy actor with cheap turns, because enqueueing would take longer.
//!
//! Two threads that alternate on an actor bounce its cache lines between their cores, which costs far more than a cheap
//! turn. So a thread that finds it busy backs off exponentially, and the other one runs turn after turn meanwhile.
//!
//! While the mailbox holds messages every call must be enqueued, which costs far more than an inline call. So callers
//! also spin for a worker that is about to drain the mailbox.

use elastin_actor::{Handlers, Instance};

use super::ActorCell;
use crate::cell::lifecycle::{Flag, MESSAGES};
use crate::cell::run::saves_each_turn;
use crate::tuning::{SPINS_MAX, SPINS_PER_PROBE_MAX};

/// Spins before each probe: one, then doubling, until [`SPINS_MAX`] is reached in total.
fn spins() -> impl Iterator<Item = u32> {
    let each = std::iter::successors(Some(1), |spins| Some((2 * spins).min(SPINS_PER_PROBE_MAX)));
    each.scan(0, |waited, spins| {
        let continues = *waited < SPINS_MAX;
        *waited += spins;
        continues.then_some(spins)
    })
}

impl<A: Handlers> ActorCell<A> {
    /// Spins for the instance of a busy actor.
    pub(super) fn spin_for_instance(&self) -> Option<Box<Instance<A>>> {
        for spins in spins() {
            let attention = self.idle.attention();
            let waits_for_worker = attention == MESSAGES && self.is_worker_draining();
            if (attention != 0 && !waits_for_worker) || self.idle.flags.has(Flag::Suspended) {
                return None;
            }
            (0..spins).for_each(|_| std::hint::spin_loop());
            // A probe takes the cache line from the thread that is about to return the instance.
            if !waits_for_worker && let Some(instance) = self.idle.take() {
                return Some(instance);
            }
        }
        None
    }

    /// Whether a worker is most likely draining the mailbox: the cell waits neither for a worker nor for a store.
    fn is_worker_draining(&self) -> bool {
        !self.idle.flags.has(Flag::Scheduled) && !saves_each_turn::<A>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_become_rare_and_end() {
        let probes: Vec<u32> = spins().collect();
        assert_eq!(probes[..3], [1, 2, 4]);
        assert!(probes.is_sorted() && probes.last() == Some(&SPINS_PER_PROBE_MAX));
        let waited: u32 = probes.iter().sum();
        assert!((SPINS_MAX..SPINS_MAX + SPINS_PER_PROBE_MAX).contains(&waited));
    }
}

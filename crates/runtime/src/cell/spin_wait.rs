//! Callers that spin briefly for a busy actor, because enqueueing would take longer.
//!
//! Two threads that alternate on an actor bounce its cache lines between their cores, which costs far more than a cheap
//! turn. So a thread that finds it busy backs off exponentially, and the other one runs turn after turn meanwhile.
//!
//! While the mailbox holds messages every call must be enqueued, which costs far more than an inline call. So callers
//! also spin for a worker that is about to drain the mailbox.

use std::cell::RefCell;

use elastin_actor::{Handlers, Instance};

use super::ActorCell;
use crate::backoff::AdaptiveBackoff;
use crate::cell::lifecycle::{Flag, MESSAGES};
use crate::cell::run::saves_each_turn;
use crate::tuning::{SPINS, SPINS_IF_CHEAP, SPINS_PER_PROBE_MAX};

thread_local! {
    // Backoff for spinning on actors with cheap turns.
    static BACKOFF: RefCell<AdaptiveBackoff> = const { RefCell::new(AdaptiveBackoff::NEW) };
}

/// Spins before each probe: one, then doubling, until `max` is reached in total.
fn spins(max: u32) -> impl Iterator<Item = u32> {
    let each = std::iter::successors(Some(1), |spins| Some((2 * spins).min(SPINS_PER_PROBE_MAX)));
    each.scan(0, move |waited, spins| {
        let continues = *waited < max;
        *waited += spins;
        continues.then_some(spins)
    })
}

impl<A: Handlers> ActorCell<A> {
    /// Spins for the instance of a busy actor.
    pub(super) fn spin_for_instance(&self) -> Option<Box<Instance<A>>> {
        let spins_long =
            self.idle.turn_cost.is_inline_cheap() && !BACKOFF.with_borrow_mut(AdaptiveBackoff::should_skip);
        let max = if spins_long { SPINS_IF_CHEAP } else { SPINS };
        for spins in spins(max) {
            let attention = self.attention();
            let waits_for_worker = attention == MESSAGES && spins_long && self.is_worker_draining();
            if (attention != 0 && !waits_for_worker) || self.idle.flags.has(Flag::Suspended) {
                return None;
            }
            (0..spins).for_each(|_| std::hint::spin_loop());
            // A probe takes the cache line from the thread that is about to return the instance.
            if !waits_for_worker && let Some(instance) = self.idle.take() {
                if spins_long {
                    BACKOFF.with_borrow_mut(AdaptiveBackoff::success);
                }
                return Some(instance);
            }
        }
        if spins_long {
            BACKOFF.with_borrow_mut(AdaptiveBackoff::failure);
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
        assert_eq!(spins(SPINS).collect::<Vec<_>>(), [1, 2, 4]);
        let probes: Vec<u32> = spins(SPINS_IF_CHEAP).collect();
        assert!(probes.is_sorted() && probes.last() == Some(&SPINS_PER_PROBE_MAX));
        let waited: u32 = probes.iter().sum();
        assert!((SPINS_IF_CHEAP..SPINS_IF_CHEAP + SPINS_PER_PROBE_MAX).contains(&waited));
    }
}

//! Callers that wait a moment for an actor which is busy, because to queue would take them longer.
//!
//! Two threads that take turns with an actor hand it to and fro between their cores, which takes many times as long as a brief
//! turn. Whoever finds it busy therefore stays away for longer and longer: meanwhile the other one runs turn after turn. And while
//! there is mail, all calls that come add to it, each at many times the cost of one that needs no mailbox. So they also wait for
//! a worker that is about to come to the end of it.

use std::cell::RefCell;

use elastin_actor::{Handlers, Instance};

use super::{ActorCell, MAIL};
use crate::backoff::AdaptiveBackoff;
use crate::cell::flags::Mark;
use crate::cell::run::saves_each_turn;

/// How long a caller waits, in pauses of the processor, some nanoseconds each: about as long as it takes to queue a call and to wake
/// its caller again.
const PAUSES: u32 = 6;

/// The same if the actor's turns are brief: tens of microseconds, in which hundreds of them run.
const PAUSES_IF_BRIEF: u32 = 1200;

/// How many pauses there are between two looks at most.
const PAUSES_AT_ONCE: u32 = 64;

thread_local! {
    // Without a destructor, so that access to it costs little.
    /// Whether to wait for actors whose turns are brief.
    static BACKOFF: RefCell<AdaptiveBackoff> = const { RefCell::new(AdaptiveBackoff::NEW) };
}

/// How many pauses come before each look: one, then twice as many each time, until altogether there were enough.
fn pauses(most: u32) -> impl Iterator<Item = u32> {
    let each = std::iter::successors(Some(1), |pauses| Some((2 * pauses).min(PAUSES_AT_ONCE)));
    each.scan(0, move |waited, pauses| {
        let goes_on = *waited < most;
        *waited += pauses;
        goes_on.then_some(pauses)
    })
}

impl<A: Handlers> ActorCell<A> {
    /// Waits a moment for the instance of an actor that is busy.
    pub(super) fn wait_for_body(&self) -> Option<Box<Instance<A>>> {
        let waits_long = self.idle.turns.is_inline_cheap() && !BACKOFF.with_borrow_mut(AdaptiveBackoff::should_skip);
        let most = if waits_long { PAUSES_IF_BRIEF } else { PAUSES };
        for pauses in pauses(most) {
            let attention = self.attention();
            let waits_for_mail = attention == MAIL && waits_long && self.is_mail_run();
            if (attention != 0 && !waits_for_mail) || self.idle.marks.has(Mark::Suspended) {
                return None;
            }
            (0..pauses).for_each(|_| std::hint::spin_loop());
            // A look into the cell takes it from whoever is about to give the actor back.
            if !waits_for_mail && let Some(instance) = self.idle.take() {
                if waits_long {
                    BACKOFF.with_borrow_mut(AdaptiveBackoff::success);
                }
                return Some(instance);
            }
        }
        if waits_long {
            BACKOFF.with_borrow_mut(AdaptiveBackoff::failure);
        }
        None
    }

    /// Whether a worker is most likely running the mail: it does not wait for one, nor for a store.
    fn is_mail_run(&self) -> bool {
        !self.idle.marks.has(Mark::Scheduled) && !saves_each_turn::<A>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_and_come_to_an_end() {
        assert_eq!(pauses(PAUSES).collect::<Vec<_>>(), [1, 2, 4]);
        let looks: Vec<u32> = pauses(PAUSES_IF_BRIEF).collect();
        assert!(looks.is_sorted() && looks.last() == Some(&PAUSES_AT_ONCE));
        let waited: u32 = looks.iter().sum();
        assert!((PAUSES_IF_BRIEF..PAUSES_IF_BRIEF + PAUSES_AT_ONCE).contains(&waited));
    }
}

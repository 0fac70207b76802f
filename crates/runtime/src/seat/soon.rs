//! Callers that wait a moment for an actor which is busy, because to queue would take them longer.
//!
//! Two threads that take turns with an actor hand it to and fro between their cores, which takes many times as long as a brief
//! turn. Whoever finds it busy therefore stays away for longer and longer: meanwhile the other one runs turn after turn. And while
//! there is mail, all calls that come add to it, each at many times the cost of one that needs no mailbox. So they also wait for
//! a worker that is about to come to the end of it.

use std::cell::RefCell;

use elastin_actor::{Body, Handlers};

use super::run::saves_each_turn;
use super::{ActorSeat, MAIL};
use crate::caution::Caution;
use crate::marks::Mark;

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
    static CAUTION: RefCell<Caution> = const { RefCell::new(Caution::NEW) };
}

impl<A: Handlers> ActorSeat<A> {
    /// Waits a moment for the body of an actor that is busy.
    pub(super) fn wait_for_body(&self) -> Option<Box<Body<A>>> {
        let waits_long = self.idle.turns.are_brief() && !CAUTION.with_borrow_mut(Caution::leaves_next);
        let most = if waits_long { PAUSES_IF_BRIEF } else { PAUSES };
        let (mut waited, mut pauses) = (0, 1);
        while waited < most {
            let attention = self.attention();
            let waits_for_mail = attention == MAIL && waits_long && self.is_mail_run();
            if (attention != 0 && !waits_for_mail) || self.idle.marks.has(Mark::Suspended) {
                return None;
            }
            (0..pauses).for_each(|_| std::hint::spin_loop());
            waited += pauses;
            pauses = (2 * pauses).min(PAUSES_AT_ONCE);
            // A look into the cell takes it from whoever is about to give the actor back.
            if !waits_for_mail && let Some(body) = self.idle.take() {
                if waits_long {
                    CAUTION.with_borrow_mut(Caution::went_well);
                }
                return Some(body);
            }
        }
        if waits_long {
            CAUTION.with_borrow_mut(Caution::went_wrong);
        }
        None
    }

    /// Whether a worker is most likely running the mail: it does not wait for one, nor for a store.
    fn is_mail_run(&self) -> bool {
        !self.idle.marks.has(Mark::Scheduled) && !saves_each_turn::<A>()
    }
}

//! Turns that run on their caller's thread.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Body, Finished, Handlers, Join, Lent, Posted, Scope, Share, Target, Turn};
use elastin_types::{ActivationEpoch, ActorId, CallError};

use super::{ActorSeat, INACTIVE};
use crate::ActivateError;
use crate::mailbox::Suspended;
use crate::settings::INLINE_DEPTH_MAX;

impl<A: Handlers> Target<A> for ActorSeat<A> {
    fn begin(&self, depth: u32) -> Option<Box<Body<A>>> {
        let scheduler = &self.shared.scheduler;
        if scheduler.is_fenced() || !may_run_inline(depth) {
            return None;
        }
        // Outside a turn, the thread may be anybody's: only workers keep to a CPU share, and handlers may need tokio.
        if depth == 0 && (scheduler.is_limited() || tokio::runtime::Handle::try_current().is_err()) {
            return None;
        }
        let body = match self.idle.take() {
            Some(body) => body,
            None => self.begin_inactive()?,
        };
        if self.attention() != 0 {
            self.settle(self.mailbox.lock(), body);
            return None;
        }
        Some(body)
    }

    fn finish(&self, body: Box<Body<A>>) -> Finished {
        let epoch = body.epoch;
        self.idle.put(body);
        if self.attention() != 0 && !self.look_again(epoch) {
            return Finished::Lost;
        }
        if self.shared.scheduler.is_fenced() {
            return Finished::Hold;
        }
        Finished::Reply
    }

    fn finish_saved(&self, body: Box<Body<A>>, turn: Pin<Box<dyn Turn<A>>>) {
        self.save(self.mailbox.lock(), body, vec![turn]);
    }

    fn suspend(&self, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>, waker: Waker) {
        self.suspend_turn(self.mailbox.lock(), Suspended { turn, scope, waker });
    }

    fn count_panic(&self) {
        self.shared.panics.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(&self) {
        self.lose(None);
    }

    fn hold_reply(&self, turn: Pin<Box<dyn Turn<A>>>) {
        self.reply(turn);
    }

    fn post(&self, call: &mut dyn Posted<A>, room: Option<&Waker>) -> Result<(), CallError> {
        self.post_call(call, room)
    }

    fn join(&self, depth: u32, sender: &ActorId) -> Join {
        self.may_join(depth, sender)
    }

    fn suspend_shared(&self, lent: Lent, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>, share: Share) {
        self.suspend_sharer(lent, turn, scope, share);
    }

    fn finish_shared(&self, lent: Lent, over: Option<Pin<Box<dyn Turn<A>>>>, share: Share) -> Finished {
        self.finish_sharer(lent, over, share)
    }
}

impl<A: Handlers> ActorSeat<A> {
    /// Takes the actor although it is not idle, if all it needs is to be activated.
    #[cold]
    fn begin_inactive(&self) -> Option<Box<Body<A>>> {
        if self.attention() & INACTIVE == 0 || self.shared.is_stopped() {
            return None;
        }
        let grant = self.shared.outside.may_activate_here(&self.id)?;
        match self.activate_from(grant.epoch, grant.image, Vec::new()) {
            // Somebody else was quicker: the actor is active, which is what counts.
            Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => self.idle.take(),
            Err((error, _)) => {
                tracing::error!(actor = ?self.id, %error, "an actor can't be activated");
                None
            }
        }
    }

    /// Something wants to be done before the next turn; the body was just put into the idle cell. Says whether its activation
    /// still is.
    #[cold]
    fn look_again(&self, epoch: ActivationEpoch) -> bool {
        match self.idle.take() {
            Some(body) => {
                let mailbox = self.mailbox.lock();
                let is_active = mailbox.epoch == Some(epoch);
                self.settle(mailbox, body);
                is_active
            }
            // Whoever took it out has seen to it.
            None => true,
        }
    }
}

/// How many inline calls a thread makes within turns before one takes the mailbox, so that a turn which does nothing but call
/// idle actors lets go of its worker at times.
const INLINE_CALLS_MAX: u32 = 1024;

/// The same for threads outside, which have other tasks to run.
const INLINE_CALLS_OUTSIDE_MAX: u32 = 128;

thread_local! {
    static INLINE_CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Whether the next call of this thread may run inline.
pub(super) fn may_run_inline(depth: u32) -> bool {
    if depth >= INLINE_DEPTH_MAX {
        return false;
    }
    let made = INLINE_CALLS.get();
    let max = if depth == 0 {
        INLINE_CALLS_OUTSIDE_MAX
    } else {
        INLINE_CALLS_MAX
    };
    let within = made < max;
    INLINE_CALLS.set(if within { made + 1 } else { 0 });
    within
}

//! Turns that run on their caller's thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Finished, Handlers, Instance, Invoke, Join, Posted, Scope, Share, SharedInstance, Ticket, Turn};
use elastin_types::{ActorId, CallError};

use super::{ActorCell, INACTIVE};
use crate::ActivateError;
use crate::cell::flags::Mark;
use crate::cell::state::Suspended;
use crate::scheduler::caller_resume::ResumeBy;
use crate::settings::INLINE_DEPTH_MAX;

impl<A: Handlers> Invoke<A> for ActorCell<A> {
    fn begin(&self, depth: u32) -> Option<Box<Instance<A>>> {
        if !self.may_run_inline(depth) {
            return None;
        }
        match self.idle.take() {
            Some(instance) => self.begin_with(instance),
            None => self.begin_inactive().and_then(|instance| self.begin_with(instance)),
        }
    }

    fn try_begin_spinning(&self, depth: u32) -> Option<Box<Instance<A>>> {
        match self.may_run_inline(depth) {
            true => self.wait_for_body().and_then(|instance| self.begin_with(instance)),
            false => None,
        }
    }

    fn try_begin_cheap(&self, depth: u32) -> Option<Box<Instance<A>>> {
        if !self.idle.turns.is_inline_cheap() || !self.may_run_inline(depth) {
            return None;
        }
        self.idle.take().and_then(|instance| self.begin_with(instance))
    }

    fn finish(&self, instance: Box<Instance<A>>) -> Finished {
        self.idle.put(instance);
        if self.attention() != 0 && !self.look_again() {
            return Finished::Lost;
        }
        if self.shared.scheduler.is_fenced() {
            return Finished::Hold;
        }
        Finished::Reply
    }

    fn finish_saved(&self, instance: Box<Instance<A>>, turn: Pin<Box<dyn Turn<A>>>) {
        self.save(self.lock(), instance, vec![turn]);
    }

    fn caller_resumes(&self) -> bool {
        self.idle.turns.is_resume_cheap()
    }

    fn suspend(
        &self,
        turn: Pin<Box<dyn Turn<A>>>,
        scope: Box<Scope>,
        waker: Arc<Waker>,
        caller: Option<(Ticket, &Waker)>,
    ) {
        let mailbox = self.lock();
        let mut suspended = Suspended {
            turn,
            scope,
            waker,
            run_by: ResumeBy::Workers,
        };
        let is_woken = suspended.is_woken(&mailbox);
        if let Some((ticket, caller)) = caller {
            suspended.run_by = ResumeBy::caller(ticket, Some(caller).filter(|_| !is_woken));
        }
        self.suspend_turn(mailbox, suspended).pass_on(|| self.arc());
        if is_woken && let Some((_, caller)) = caller {
            caller.wake_by_ref();
        }
    }

    fn resume(&self, depth: u32, caller: (Ticket, &Waker)) -> bool {
        self.resume_by_caller(depth, caller)
    }

    fn part(&self, ticket: Ticket) {
        self.leave_to_workers(ticket);
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

    fn suspend_shared(&self, shared: SharedInstance, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>, share: Share) {
        self.suspend_interleaved(shared, turn, scope, share);
    }

    fn finish_shared(&self, shared: SharedInstance, over: Option<Pin<Box<dyn Turn<A>>>>, share: Share) -> Finished {
        self.finish_interleaved(shared, over, share)
    }
}

/// Whether this thread is in a tokio runtime. A task has a number, which is looked up quicker: a handle is counted, by all threads
/// in one place.
#[inline]
fn has_tokio() -> bool {
    tokio::task::try_id().is_some() || tokio::runtime::Handle::try_current().is_ok()
}

impl<A: Handlers> ActorCell<A> {
    /// Whether a call may run on this thread, which is inside of so many turns.
    #[inline]
    pub(super) fn may_run_inline(&self, depth: u32) -> bool {
        let scheduler = &self.shared.scheduler;
        // Remote a turn, the thread may be anybody's: only workers keep to a CPU share, and handlers may need tokio. Within one,
        // whoever began it has looked at the clock, which would cost a third of such a call.
        let is_own = || depth > 0 || (!scheduler.is_limited() && has_tokio() && !scheduler.look_whether_fenced());
        depth < INLINE_DEPTH_MAX && !scheduler.is_fenced() && is_own()
    }

    /// The actor was just taken out of the idle cell: it may run a turn if nothing is to be done before.
    #[inline]
    fn begin_with(&self, instance: Box<Instance<A>>) -> Option<Box<Instance<A>>> {
        if self.attention() != 0 {
            self.settle(self.lock(), instance);
            return None;
        }
        Some(instance)
    }

    /// Takes the actor although it is not idle, if all it needs is to be activated.
    #[cold]
    fn begin_inactive(&self) -> Option<Box<Instance<A>>> {
        if self.attention() & INACTIVE == 0 || self.shared.is_stopped() {
            return None;
        }
        let grant = self.shared.outside.may_activate_here(&self.actor())?;
        match self.activate_from(grant.epoch, grant.image, Vec::new()) {
            // Somebody else was quicker: the actor is active, which is what counts.
            Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => self.idle.take(),
            Err((error, _)) => {
                tracing::error!(actor = ?self.actor(), %error, "an actor can't be activated");
                None
            }
        }
    }

    /// Something wants to be done before the next turn; the instance was just put into the idle cell. Says whether its activation
    /// still is.
    #[cold]
    fn look_again(&self) -> bool {
        match self.idle.take() {
            Some(instance) => {
                let mailbox = self.lock();
                let is_active = !mailbox.is(Mark::Orphan);
                self.settle(mailbox, instance);
                is_active
            }
            // Whoever took it out has seen to it.
            None => true,
        }
    }
}

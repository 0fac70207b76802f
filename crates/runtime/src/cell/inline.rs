//! Turns that run inline on their caller's thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Finished, Handlers, Instance, Invoke, Join, Posted, Scope, Share, SharedInstance, Ticket, Turn};
use elastin_types::{ActorId, CallError};

use super::{ActorCell, INACTIVE};
use crate::ActivateError;
use crate::cell::flags::Flag;
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
            true => self.spin_for_instance().and_then(|instance| self.begin_with(instance)),
            false => None,
        }
    }

    fn try_begin_cheap(&self, depth: u32) -> Option<Box<Instance<A>>> {
        if !self.idle.turn_cost.is_inline_cheap() || !self.may_run_inline(depth) {
            return None;
        }
        self.idle.take().and_then(|instance| self.begin_with(instance))
    }

    fn finish(&self, instance: Box<Instance<A>>) -> Finished {
        self.idle.put(instance);
        if self.attention() != 0 && !self.recheck() {
            return Finished::Lost;
        }
        if self.runtime.scheduler.is_fenced() {
            return Finished::Hold;
        }
        Finished::Reply
    }

    fn finish_saved(&self, instance: Box<Instance<A>>, turn: Pin<Box<dyn Turn<A>>>) {
        self.save(self.lock(), instance, vec![turn]);
    }

    fn caller_resumes(&self) -> bool {
        self.idle.turn_cost.is_resume_cheap()
    }

    fn suspend(
        &self,
        turn: Pin<Box<dyn Turn<A>>>,
        scope: Box<Scope>,
        waker: Arc<Waker>,
        caller: Option<(Ticket, &Waker)>,
    ) {
        let guard = self.lock();
        let mut suspended = Suspended {
            turn,
            scope,
            waker,
            resume_by: ResumeBy::Workers,
        };
        let is_woken = suspended.is_woken(&guard);
        if let Some((ticket, caller)) = caller {
            suspended.resume_by = ResumeBy::caller(ticket, Some(caller).filter(|_| !is_woken));
        }
        self.suspend_turn(guard, suspended).notify(|| self.arc());
        if is_woken && let Some((_, caller)) = caller {
            caller.wake_by_ref();
        }
    }

    fn resume(&self, depth: u32, caller: (Ticket, &Waker)) -> bool {
        self.resume_by_caller(depth, caller)
    }

    fn detach(&self, ticket: Ticket) {
        self.leave_to_workers(ticket);
    }

    fn count_panic(&self) {
        self.runtime.panics.fetch_add(1, Ordering::Relaxed);
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

/// Whether this thread is inside a tokio runtime. The task id is checked first because a handle bumps a reference count
/// that all threads contend for.
#[inline]
fn has_tokio() -> bool {
    tokio::task::try_id().is_some() || tokio::runtime::Handle::try_current().is_ok()
}

impl<A: Handlers> ActorCell<A> {
    /// Whether a call may run on this thread, which is already this many turns deep.
    #[inline]
    pub(super) fn may_run_inline(&self, depth: u32) -> bool {
        let scheduler = &self.runtime.scheduler;
        // Outside a turn the thread may belong to anyone: only workers honour the CPU quota, and handlers may need
        // tokio. Inside a turn the outermost call has checked the lease, and another clock read would be too slow.
        let is_own = || depth > 0 || (!scheduler.is_limited() && has_tokio() && !scheduler.is_fenced_now());
        depth < INLINE_DEPTH_MAX && !scheduler.is_fenced() && is_own()
    }

    /// Starts a turn with an instance just taken from the idle slot, unless an attention bit is set.
    #[inline]
    fn begin_with(&self, instance: Box<Instance<A>>) -> Option<Box<Instance<A>>> {
        if self.attention() != 0 {
            self.settle(self.lock(), instance);
            return None;
        }
        Some(instance)
    }

    /// Takes the instance of an actor that only needs to be activated.
    #[cold]
    fn begin_inactive(&self) -> Option<Box<Instance<A>>> {
        if self.attention() & INACTIVE == 0 || self.runtime.is_stopped() {
            return None;
        }
        let grant = self.runtime.remote.may_activate_here(&self.actor())?;
        match self.activate_from(grant.epoch, grant.image, Vec::new()) {
            // Another thread activated it first, which serves as well.
            Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => self.idle.take(),
            Err((error, _)) => {
                tracing::error!(actor = ?self.actor(), %error, "cannot activate the actor");
                None
            }
        }
    }

    /// Settles an instance that was just put into the idle slot while an attention bit was set. Returns whether its
    /// activation still exists.
    #[cold]
    fn recheck(&self) -> bool {
        match self.idle.take() {
            Some(instance) => {
                let guard = self.lock();
                let is_active = !guard.is(Flag::Orphan);
                self.settle(guard, instance);
                is_active
            }
            // The thread that took it out settles it.
            None => true,
        }
    }
}

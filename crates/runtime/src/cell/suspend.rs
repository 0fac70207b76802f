//! Suspended turns: how they are woken, and by which thread they are resumed.

use std::sync::Arc;
use std::task::{Wake, Waker};

use elastin_actor::{Handlers, Ticket};
use elastin_types::CallError;

use super::ActorCell;
use crate::cell::lifecycle::Flag;
use crate::cell::run::TurnOutcome;
use crate::cell::state::{CellGuard, Suspended};
use crate::scheduler::caller_resume::ResumesTurns;
use crate::scheduler::{Scheduler, WakeMode};

/// Recipient of the notification that a turn was woken.
#[must_use = "a woken turn resumes only after its target is notified"]
enum WakeTarget {
    /// Already notified.
    None,
    Workers,
    Caller(Waker),
}

impl WakeTarget {
    /// Notifies the recipient. Call without the lock: a waker may run any code.
    fn notify<A: Handlers>(self, cell: impl FnOnce() -> Arc<ActorCell<A>>) {
        match self {
            WakeTarget::None => {}
            WakeTarget::Workers => Scheduler::schedule(cell(), WakeMode::Later),
            WakeTarget::Caller(waker) => waker.wake(),
        }
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Stores a suspended turn until it is woken, which may have happened already.
    pub(super) fn suspend_turn(&self, mut guard: CellGuard<'_, A>, suspended: Suspended<A>) {
        let chain = suspended.scope.chain();
        if guard.is_orphaned() {
            return self.reap_suspended(guard, suspended);
        }
        let is_woken = guard.is(Flag::Woken);
        guard.set(Flag::Suspended, true);
        let cold = guard.cold();
        cold.suspended = Some(suspended);
        // Calls of the same chain that arrived while the turn ran would wait for the turn, and it for them.
        let chain = chain.filter(|_| !cold.mailbox.is_empty());
        let cycles = chain.map_or_else(Vec::new, |chain| cold.take_cycles(chain));
        let woken = match is_woken {
            true => self.wake_suspended(&mut guard),
            false => WakeTarget::None,
        };
        drop(guard);
        for mut turn in cycles {
            turn.as_mut().fail(CallError::CallCycle);
        }
        woken.notify(|| self.arc());
    }

    /// Records a wake; returns the target to notify.
    fn take_wake(&self) -> WakeTarget {
        let mut guard = self.lock();
        guard.set(Flag::Woken, true);
        match guard.can_be_woken() {
            true => self.wake_suspended(&mut guard),
            false => WakeTarget::None,
        }
    }

    /// Wakes the suspended turn; returns the target to notify.
    fn wake_suspended(&self, guard: &mut CellGuard<'_, A>) -> WakeTarget {
        if let Some(cold) = guard.cold_if_any()
            && let Some(suspended) = &mut cold.suspended
            && let Some(caller) = &mut suspended.caller
        {
            let waker = caller.waker.take();
            if !std::mem::replace(&mut cold.watched, true) {
                self.runtime.watchdog.add(self.me.clone());
            }
            return waker.map_or(WakeTarget::None, WakeTarget::Caller);
        }
        match guard.set(Flag::Scheduled, true) {
            true => WakeTarget::None,
            false => WakeTarget::Workers,
        }
    }

    /// Polls a suspended turn on its caller's thread, if it was woken. Returns whether it is still suspended and
    /// resumed by its caller.
    pub(super) fn resume_by_caller(&self, depth: u32, ticket: Ticket, caller: &Waker) -> bool {
        let mut guard = self.lock();
        let was_woken = guard.is(Flag::Woken);
        let Some(suspended) = guard.suspended_for(ticket) else {
            return false;
        };
        if !was_woken {
            let before = suspended.caller.as_mut().and_then(|known| known.set_waker(caller));
            drop(guard);
            drop(before);
            return true;
        }
        if !self.may_run_inline(depth) {
            suspended.caller = None;
            self.schedule(guard, WakeMode::Later);
            return false;
        }
        let suspended = guard
            .cold()
            .suspended
            .take()
            .expect("the suspended turn was just checked");
        guard.set(Flag::Woken, false);
        guard.set(Flag::Suspended, false);
        drop(guard);
        let outcome = self.resume_turn(suspended, Some(caller));
        let waits = matches!(&outcome, TurnOutcome::Pending(suspended) if suspended.caller.is_some());
        self.settle_resumed(outcome);
        waits
    }

    /// Leaves a suspended turn to the workers because its caller is gone.
    pub(super) fn leave_to_workers(&self, ticket: Ticket) {
        let mut guard = self.lock();
        let was_woken = guard.is(Flag::Woken);
        let Some(suspended) = guard.suspended_for(ticket) else {
            return;
        };
        let waker = suspended.caller.take().and_then(|mut caller| caller.waker.take());
        if was_woken {
            self.schedule(guard, WakeMode::Later);
        } else {
            drop(guard);
        }
        // Without the lock: a waker's drop may run any code.
        drop(waker);
    }
}

impl<A: Handlers> Wake for ActorCell<A> {
    fn wake(self: Arc<Self>) {
        self.take_wake().notify(|| self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.take_wake().notify(|| self.clone());
    }
}

impl<A: Handlers> ResumesTurns for ActorCell<A> {
    fn check_caller_resumes(&self) -> bool {
        let mut guard = self.lock();
        let was_woken = guard.is(Flag::Woken);
        let Some(cold) = guard.cold_if_any() else {
            return false;
        };
        cold.watched = false;
        if !was_woken {
            return false;
        }
        let Some(suspended) = &mut cold.suspended else {
            return false;
        };
        let Some(caller) = &mut suspended.caller else {
            return false;
        };
        if !std::mem::replace(&mut caller.overdue, true) {
            cold.watched = true;
            return true;
        }
        suspended.caller = None;
        self.schedule(guard, WakeMode::Later);
        false
    }
}

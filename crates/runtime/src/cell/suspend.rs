//! Turns that wait for something: who is woken, and who goes on with them.

use std::sync::Arc;
use std::task::{Wake, Waker};

use elastin_actor::{Handlers, Scope, Ticket};
use elastin_types::CallError;

use super::ActorCell;
use crate::cell::flags::Mark;
use crate::cell::run::Ran;
use crate::cell::state::{CellGuard, Suspended};
use crate::scheduler::caller_resume::{ResumeBy, ResumesTurns};
use crate::scheduler::{Scheduler, WakeMode};

/// Who is to know that a turn was woken.
#[must_use = "a turn of which nobody knows that it was woken does not go on"]
pub(super) enum Woken {
    /// Who is to know does.
    Nobody,
    Workers,
    Caller(Waker),
}

impl Woken {
    /// Lets those know who are to. Remote the lock: a waker may run any code.
    pub(super) fn pass_on<A: Handlers>(self, cell: impl FnOnce() -> Arc<ActorCell<A>>) {
        match self {
            Woken::Nobody => {}
            Woken::Workers => Scheduler::schedule(cell(), WakeMode::Later),
            Woken::Caller(waker) => waker.wake(),
        }
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Keeps a turn that waits for something, until it is woken; says who is to know, if it was already.
    pub(super) fn suspend_turn(&self, mut mailbox: CellGuard<'_, A>, suspended: Suspended<A>) -> Woken {
        let chain = suspended.scope.chain();
        if mailbox.is(Mark::Orphan) {
            self.bury_suspended(mailbox, suspended);
            return Woken::Nobody;
        }
        let is_woken = suspended.is_woken(&mailbox);
        mailbox.set(Mark::Woken, is_woken);
        mailbox.set(Mark::Suspended, true);
        let rest = mailbox.rest();
        rest.suspended = Some(suspended);
        // Calls of this very chain that came while the turn ran would wait for the turn, and it for them.
        let chain = chain.filter(|_| !rest.queue.is_empty());
        let cycles = chain.map_or_else(Vec::new, |chain| rest.take_cycles(chain));
        let woken = match is_woken {
            true => self.wake_suspended(&mut mailbox),
            false => Woken::Nobody,
        };
        drop(mailbox);
        for mut turn in cycles {
            turn.as_mut().fail(CallError::CallCycle);
        }
        woken
    }

    /// Notes that a turn was woken; says who is to know of it.
    fn take_wake(&self) -> Woken {
        let mut mailbox = self.lock();
        mailbox.set(Mark::Woken, true);
        match mailbox.can_be_woken() {
            true => self.wake_suspended(&mut mailbox),
            false => Woken::Nobody,
        }
    }

    /// A turn that waits was woken; says who is to know of it.
    fn wake_suspended(&self, mailbox: &mut CellGuard<'_, A>) -> Woken {
        if let Some(rest) = mailbox.rest_if_any()
            && let Some(suspended) = &mut rest.suspended
            && let ResumeBy::Caller(caller) = &mut suspended.run_by
        {
            let waker = caller.take_waker();
            if !std::mem::replace(&mut rest.watched, true) {
                self.shared.watch.add(self.me.clone());
            }
            return waker.map_or(Woken::Nobody, Woken::Caller);
        }
        match mailbox.set(Mark::Scheduled, true) {
            true => Woken::Nobody,
            false => Woken::Workers,
        }
    }

    /// The caller of a turn that waits polls it, if it was woken. Says whether it waits, and for its caller.
    pub(super) fn resume_by_caller(&self, depth: u32, (ticket, caller): (Ticket, &Waker)) -> bool {
        let mut mailbox = self.lock();
        let was_woken = mailbox.is(Mark::Woken);
        let Some(suspended) = mailbox.suspended() else {
            return false;
        };
        let Some(caller_resume) = suspended.run_by.resumed_by(ticket) else {
            return false;
        };
        if !was_woken {
            let before = caller_resume.set_waker(caller);
            drop(mailbox);
            drop(before);
            return true;
        }
        if !self.may_run_inline(depth) {
            suspended.run_by = ResumeBy::Workers;
            self.schedule(mailbox, WakeMode::Later);
            return false;
        }
        let suspended = mailbox.rest().suspended.take().expect("it was just seen");
        mailbox.set(Mark::Woken, false);
        mailbox.set(Mark::Suspended, false);
        drop(mailbox);
        let ran = self.resume_turn(suspended, Some(caller));
        let waits = matches!(ran, Ran::Waits(_, _, ResumeBy::Caller(_)));
        self.settle_resumed(ran).pass_on(|| self.arc());
        waits
    }

    /// The caller of a turn that waits goes away: workers go on with it.
    pub(super) fn leave_to_workers(&self, ticket: Ticket) {
        let mut mailbox = self.lock();
        let was_woken = mailbox.is(Mark::Woken);
        let Some(suspended) = mailbox.suspended() else { return };
        let Some(caller) = suspended.run_by.resumed_by(ticket) else {
            return;
        };
        let waker = caller.take_waker();
        suspended.run_by = ResumeBy::Workers;
        if was_woken {
            self.schedule(mailbox, WakeMode::Later);
        } else {
            drop(mailbox);
        }
        // Remote the lock: a waker's drop may run any code.
        drop(waker);
    }
}

impl<A: Handlers> Wake for ActorCell<A> {
    fn wake(self: Arc<Self>) {
        if !Scope::note_wake(&self) {
            self.take_wake().pass_on(|| self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !Scope::note_wake(self) {
            self.take_wake().pass_on(|| self.clone());
        }
    }
}

impl<A: Handlers> ResumesTurns for ActorCell<A> {
    fn check_caller_resumes(&self) -> bool {
        let mut mailbox = self.lock();
        let was_woken = mailbox.is(Mark::Woken);
        let Some(rest) = mailbox.rest_if_any() else {
            return false;
        };
        rest.watched = false;
        if !was_woken {
            return false;
        }
        let Some(suspended) = &mut rest.suspended else {
            return false;
        };
        let ResumeBy::Caller(caller) = &mut suspended.run_by else {
            return false;
        };
        if !caller.note_overdue() {
            rest.watched = true;
            return true;
        }
        suspended.run_by = ResumeBy::Workers;
        self.schedule(mailbox, WakeMode::Later);
        false
    }
}

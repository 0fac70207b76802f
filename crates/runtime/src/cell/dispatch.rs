//! The decision how a turn runs.
//!
//! A turn takes the first way that is open to it. [`ActorCell::dispatch`] chooses among those that start a turn,
//! [`ActorCell::caller_resumes`] among those that resume one, and [`Scheduler::schedule`] among the threads that run a
//! mailbox.
//!
//! | way | for | if | code |
//! |---|---|---|---|
//! | inline | call, tell | the actor is idle; for a tell, its turns are cheap | [`Dispatch::Inline`] |
//! | inline, activating | call | the actor is inactive and may be activated on this node | [`Dispatch::Inline`] |
//! | inline, after a spin | call | the actor is busy and its turns are cheap | [`Dispatch::Spin`], [`spin_wait`](super::spin_wait) |
//! | queued, interleaved | turn that shares the actor | others share it already | [`interleave`](super::interleave) |
//! | queued | every other message | | [`Dispatch::Queue`], [`enqueue`](super::enqueue), [`batch_run`](super::batch_run) |
//! | – on the I/O thread | messages from other nodes | it made the cell runnable | [`inline_task`](crate::scheduler::inline_task) |
//! | – on a worker | | otherwise | [`worker`](crate::scheduler::worker) |
//! | resumed by its caller | suspended inline turn | the actor's turns are cheap | [`caller_resume`](crate::scheduler::caller_resume) |
//! | resumed by a worker | suspended turn | otherwise | [`suspend`](super::suspend) |

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Finished, Handlers, Instance, Invoke, NotPosted, Scope, SharedInstance, Start, Ticket, Turn};

use super::ActorCell;
use crate::cell::lifecycle::{Flag, INACTIVE};
use crate::cell::state::{CellGuard, Suspended};
use crate::scheduler::caller_resume::CallerResume;
use crate::scheduler::{Scheduler, WakeMode};
use crate::tuning::INLINE_DEPTH_MAX;

/// How a turn starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dispatch {
    /// On this thread, if the actor is idle.
    Inline {
        /// Whether an inactive actor is activated for it.
        activate: bool,
    },
    /// On this thread, if the actor becomes idle within a moment.
    Spin,
    /// In the mailbox.
    Queue,
}

impl<A: Handlers> ActorCell<A> {
    /// Chooses how a turn starts whose caller is already `depth` turns deep on this thread.
    #[inline]
    fn dispatch(&self, start: Start, depth: u32) -> Dispatch {
        let is_wanted = start == Start::Call || self.idle.turn_cost.is_inline_cheap();
        match start {
            _ if !is_wanted || !self.may_run_inline(depth) => Dispatch::Queue,
            Start::Call => Dispatch::Inline { activate: true },
            Start::Tell => Dispatch::Inline { activate: false },
            Start::BusyCall => Dispatch::Spin,
        }
    }

    /// Whether the caller of a suspended inline turn resumes it: waking a worker costs more than a cheap turn.
    fn caller_resumes(&self) -> bool {
        self.idle.turn_cost.is_resume_cheap()
    }

    /// Whether a turn may run on this thread, which is already this many turns deep.
    #[inline]
    pub(super) fn may_run_inline(&self, depth: u32) -> bool {
        let scheduler = &self.runtime.scheduler;
        // Outside a turn the thread may belong to anyone: only workers honour the CPU quota, and handlers may need
        // tokio. Inside a turn the outermost call has checked the lease, and another clock read would be too slow.
        let is_own = || depth > 0 || (!scheduler.is_limited() && has_tokio() && !scheduler.is_fenced_now());
        depth < INLINE_DEPTH_MAX && !scheduler.is_fenced() && is_own()
    }

    /// Puts the cell into a run queue if an instance or a woken turn waits for a worker, and it is not queued already.
    pub(super) fn schedule(&self, mut guard: CellGuard<'_, A>, wake: WakeMode) {
        if guard.is_orphaned() || guard.set(Flag::Scheduled, true) {
            return;
        }
        drop(guard);
        Scheduler::schedule(self.arc(), wake);
    }

    /// Takes the instance of an actor that only needs to be activated.
    #[cold]
    fn begin_inactive(&self) -> Option<Box<Instance<A>>> {
        match self.idle.attention() & INACTIVE != 0 && self.activate_here() == Ok(true) {
            true => self.idle.take(),
            false => None,
        }
    }

    /// Settles an instance that was just put into the idle slot while an attention bit was set. Returns whether its
    /// activation still exists.
    #[cold]
    fn recheck(&self) -> bool {
        match self.idle.take() {
            Some(instance) => {
                let guard = self.lock();
                let is_active = !guard.is_orphaned();
                self.settle(guard, instance);
                is_active
            }
            // The thread that took it out settles it.
            None => true,
        }
    }
}

impl<A: Handlers> Invoke<A> for ActorCell<A> {
    fn begin(&self, start: Start, depth: u32) -> Option<Box<Instance<A>>> {
        let instance = match self.dispatch(start, depth) {
            Dispatch::Inline { activate } => match self.idle.take() {
                None if activate => self.begin_inactive(),
                instance => instance,
            },
            Dispatch::Spin => self.spin_for_instance(),
            Dispatch::Queue => None,
        }?;
        if self.idle.attention() != 0 {
            self.settle(self.lock(), instance);
            return None;
        }
        Some(instance)
    }

    fn finish(&self, instance: Box<Instance<A>>) -> Finished {
        self.idle.put(instance);
        if self.idle.attention() != 0 && !self.recheck() {
            return Finished::Lost;
        }
        if self.runtime.scheduler.is_fenced() {
            return Finished::Hold;
        }
        Finished::Reply
    }

    fn reply_later(&self, turn: Pin<Box<dyn Turn<A>>>, unsaved: Option<Box<Instance<A>>>) {
        match unsaved {
            Some(instance) => self.save(self.lock(), instance, vec![turn]),
            None => self.reply(turn),
        }
    }

    fn panicked(&self, lost: bool) {
        self.runtime.panics.fetch_add(1, Ordering::Relaxed);
        if lost {
            self.lose(None);
        }
    }

    fn suspend(
        &self,
        turn: Pin<Box<dyn Turn<A>>>,
        scope: Box<Scope>,
        waker: Arc<Waker>,
        caller: (Ticket, &Waker),
    ) -> bool {
        let (ticket, caller_waker) = caller;
        let caller_resumes = self.caller_resumes();
        let suspended = Suspended {
            turn,
            scope,
            waker,
            caller: caller_resumes.then(|| CallerResume::new(ticket, caller_waker)),
        };
        self.suspend_turn(self.lock(), suspended);
        caller_resumes
    }

    fn resume(&self, ticket: Ticket, on: Option<(u32, &Waker)>) -> bool {
        match on {
            Some((depth, caller)) => self.resume_by_caller(depth, ticket, caller),
            None => {
                self.leave_to_workers(ticket);
                false
            }
        }
    }

    fn post(&self, turn: Pin<Box<dyn Turn<A>>>, room: Option<&Waker>) -> Result<(), NotPosted<A>> {
        self.post_turn(turn, room)
    }

    fn suspend_shared(&self, shared: SharedInstance, turn: Pin<Box<dyn Turn<A>>>, scope: Box<Scope>) {
        self.suspend_interleaved(shared, turn, scope);
    }
}

/// Whether this thread is inside a tokio runtime. The task id is checked first because a handle bumps a reference count
/// that all threads contend for.
#[inline]
fn has_tokio() -> bool {
    tokio::task::try_id().is_some() || tokio::runtime::Handle::try_current().is_ok()
}

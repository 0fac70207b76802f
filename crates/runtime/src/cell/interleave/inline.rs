//! Interleaved turns that run on their caller's thread, and the transitions between exclusive and shared.
//!
//! ```text
//!   idle, or next in the mailbox                       starts beside them:
//!        │ share                                       ├─ the next message, if it shares the actor too
//!        ▼                                             └─ a call that one of them waits for
//!   shared by the turns in progress  ◀─────────────────┘
//!        │ the last one has finished, everything is saved
//!        ▼
//!   exclusive again: settle
//! ```

use elastin_actor::{Handlers, NotPosted, Scope, SharedInstance};
use elastin_types::CallError;

use crate::cell::interleave::state::{Interleaved, InterleavedTurn, Unfinished};
use crate::cell::lifecycle::{FREEZE, Flag, REPORT};
use crate::cell::mailbox::AnyTurn;
use crate::cell::run::saves_each_turn;
use crate::cell::state::{CellGuard, has_earlier};
use crate::cell::{ActorCell, drop_contained};
use crate::scheduler::WakeMode;

impl<A: Handlers> ActorCell<A> {
    /// Whether the next message in the mailbox may start interleaved, and no thread is polling the turns already.
    #[inline]
    pub(in crate::cell) fn may_begin_shared(&self, guard: &mut CellGuard<'_, A>) -> bool {
        if !A::SHARES || self.idle.attention() & FREEZE != 0 {
            return false;
        }
        let has_room = guard.unpolled().is_some_and(|interleaved| interleaved.has_room());
        has_room && guard.cold().mailbox.front().is_some_and(|turn| turn.shared())
    }

    /// Schedules the cell if interleaved turns can make progress.
    pub(in crate::cell) fn poll_interleaved(&self, mut guard: CellGuard<'_, A>) {
        let was_woken = guard.is(Flag::Woken);
        let has_work = guard
            .unpolled()
            .is_some_and(|interleaved| was_woken || interleaved.has_work());
        if has_work || self.may_begin_shared(&mut guard) {
            self.schedule(guard, WakeMode::Later);
        }
    }

    /// Enqueues a call of a chain that a turn of this actor waits for. It interleaves with that turn if both share the
    /// actor; otherwise it would deadlock.
    #[cold]
    pub(in crate::cell) fn push_into_cycle(
        &self,
        mut guard: CellGuard<'_, A>,
        turn: AnyTurn<A>,
    ) -> Result<(), NotPosted<A>> {
        let cold = guard.cold();
        let may_join = turn.shared() && !has_earlier(&turn, cold.mailbox.iter());
        match &mut cold.interleaved {
            Some(interleaved) if may_join && interleaved.has_room() => {
                interleaved.join(turn);
                self.poll_interleaved(guard);
                Ok(())
            }
            _ => Err((CallError::CallCycle, turn)),
        }
    }

    /// Suspends a turn that ran on its caller's thread and shares the actor from now on.
    pub(in crate::cell) fn suspend_interleaved(&self, shared: SharedInstance, turn: AnyTurn<A>, scope: Box<Scope>) {
        let mut guard = self.lock();
        if guard.is_orphaned() {
            self.drop_shared(guard, shared);
            return self.fail_lost(turn);
        }
        let mut interleaved = Box::new(Interleaved::new(shared.clone(), true));
        let number = interleaved.begin();
        guard.cold().interleaved = Some(interleaved);
        // It was polled with the actor's own waker.
        let waker = None;
        let refused = self.put_interleaved(&mut guard, number, InterleavedTurn { turn, scope, waker });
        self.leave_interleaving(guard, shared);
        fail_cycles(refused);
    }

    /// Stores a suspended turn. Returns queued calls that would deadlock with it.
    pub(in crate::cell) fn put_interleaved(
        &self,
        guard: &mut CellGuard<'_, A>,
        number: u64,
        interleaved_turn: InterleavedTurn<A>,
    ) -> Vec<AnyTurn<A>> {
        let chain = interleaved_turn.scope.chain();
        let is_new = guard.interleaved().put(number, interleaved_turn);
        match chain.filter(|_| is_new) {
            Some(chain) => guard.cold().take_cycles(chain),
            None => Vec::new(),
        }
    }

    /// Holds back a finished turn that may have seen unsaved changes; otherwise returns it.
    pub(in crate::cell) fn hold_unsaved(&self, guard: &mut CellGuard<'_, A>, turn: AnyTurn<A>) -> Option<AnyTurn<A>> {
        if !saves_each_turn::<A>() {
            return Some(turn);
        }
        let interleaved = guard.interleaved();
        match &mut interleaved.saving {
            _ if interleaved.shared.is_changed() => interleaved.unsaved.push(turn),
            Some(waiting) => waiting.push(turn),
            None => return Some(turn),
        }
        None
    }

    /// Ends the polling of interleaved turns: others may proceed, or the actor becomes exclusive again.
    pub(in crate::cell) fn leave_interleaving(&self, mut guard: CellGuard<'_, A>, shared: SharedInstance) {
        let interleaved = guard.interleaved();
        interleaved.polled = false;
        if interleaved.lost.is_some() || shared.is_broken() {
            return self.lose_shared(guard, shared);
        }
        if self.idle.attention() & REPORT != 0 {
            self.idle.lower(REPORT);
            self.note(&shared.instance::<A>().state);
        }
        if interleaved.is_over() {
            guard.cold().interleaved = None;
            let Ok(instance) = shared.give_back() else {
                unreachable!("a finished turn has dropped its reference");
            };
            return self.settle(guard, instance);
        }
        // Under the lock: the last turn recovers the instance only if no other reference to it is left.
        drop(shared);
        self.save_shared(guard);
    }

    /// Drops a shared instance that can no longer be trusted; the actor restarts from its last saved state.
    pub(in crate::cell) fn lose_shared(&self, mut guard: CellGuard<'_, A>, shared: SharedInstance) {
        let cold = guard.cold();
        let interleaved = cold.interleaved.take().expect("only a shared instance is lost here");
        let error = interleaved.lost.clone().unwrap_or(CallError::Panicked);
        let Unfinished {
            waiting,
            unsaved,
            joining,
        } = interleaved.into_unfinished();
        for turn in joining.into_iter().rev() {
            cold.mailbox.push_front(turn);
        }
        drop(guard);
        unsaved.into_iter().for_each(|turn| self.fail_unsaved(turn));
        for mut turn in waiting {
            let error = error.clone();
            self.runtime.when_unfenced(move || {
                turn.as_mut().fail(error);
                drop_contained(turn);
            });
        }
        drop_contained(shared);
        self.lose(None);
    }

    /// Drops the instance after the last turn of a discarded activation.
    pub(in crate::cell) fn drop_shared(&self, guard: CellGuard<'_, A>, shared: SharedInstance) {
        self.clear_orphan(guard);
        drop_contained(shared);
    }
}

/// Fails calls that would deadlock.
pub(in crate::cell) fn fail_cycles<A>(calls: Vec<AnyTurn<A>>) {
    for mut call in calls {
        call.as_mut().fail(CallError::CallCycle);
    }
}

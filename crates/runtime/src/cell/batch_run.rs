//! A worker's run of a batch: several turns of one actor, bounded so that other actors get their share.

use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Handlers, Instance};
use elastin_types::{CallError, NotDelivered, Time};

use super::ActorCell;
use crate::cell::lifecycle::{Flag, MESSAGES, REPORT};
use crate::cell::mailbox::{AnyTurn, Batch};
use crate::cell::run::{TurnOutcome, saves_each_turn};
use crate::cell::state::CellGuard;
use crate::tuning::BATCH_TIME_MAX;

/// Progress of a batch run.
#[derive(Default)]
pub(super) struct BatchRun {
    pub(super) turns: u32,
    /// Since when other cells wait for this worker.
    others_wait_since: Option<Time>,
    /// Senders that wait for room in the mailbox. They are woken when the batch ends: they then find the actor idle, and
    /// run cheap turns inline.
    pub(super) room_waiters: Vec<Waker>,
}

impl Drop for BatchRun {
    fn drop(&mut self) {
        self.room_waiters.drain(..).for_each(Waker::wake);
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Runs a scheduled cell: polls the suspended turn, or runs turns out of the mailbox.
    pub(super) fn run_scheduled(&self) {
        let mut guard = self.lock();
        guard.set(Flag::Scheduled, false);
        if guard.is_orphaned() {
            // The cell was scheduled for a discarded activation. Its last turn schedules the next activation.
            return;
        }
        if let Some(suspended) = guard.cold_if_any().and_then(|cold| cold.suspended.take()) {
            guard.set(Flag::Woken, false);
            guard.set(Flag::Suspended, false);
            drop(guard);
            let outcome = self.resume_turn(suspended, None);
            return self.settle_resumed(outcome);
        }
        if A::SHARES {
            let cold = guard.cold_if_any();
            if cold.is_some_and(|cold| cold.interleaved.is_some()) {
                return self.run_interleaved(guard);
            }
            let front = guard.cold_if_any().and_then(|cold| cold.mailbox.front());
            if front.is_some_and(begins_interleaving) && guard.is_waiting() {
                return self.begin_interleaving(guard);
            }
        }
        let Some(instance) = guard.take_waiting() else { return };
        let cold = guard.cold();
        let batch = cold.mailbox.take_batch();
        let mut run = BatchRun::default();
        run.room_waiters.append(&mut cold.room_waiters);
        drop(guard);
        self.run_batch(instance, batch, run);
    }

    fn run_batch(&self, mut instance: Box<Instance<A>>, mut batch: Batch<A>, mut run: BatchRun) {
        // Finished turns that are not saved yet: one save covers them all.
        let mut unsaved = Vec::new();
        let mut locked = None;
        let outcome = loop {
            let Some(turn) = batch.pop_front() else {
                // Messages that arrived meanwhile belong to the batch, unless a save comes first.
                if unsaved.is_empty() {
                    locked = self.take_more(&mut batch, &mut run);
                    if locked.is_none() {
                        continue;
                    }
                }
                break TurnOutcome::Skipped(instance);
            };
            if A::SHARES && begins_interleaving(&turn) {
                batch.push_front(turn);
                break TurnOutcome::Skipped(instance);
            }
            // A suspended turn holds the instance, so nothing could be saved meanwhile. It might even wait for a caller
            // that one of the unsaved replies would resume.
            if !unsaved.is_empty() && turn.may_wait() {
                batch.push_front(turn);
                break TurnOutcome::Skipped(instance);
            }
            run.turns += 1;
            match self.run_turn(instance, turn) {
                TurnOutcome::Done(next, turn) => {
                    instance = next;
                    if saves_each_turn::<A>() && instance.changed {
                        unsaved.push(turn);
                    } else {
                        self.reply(turn);
                    }
                }
                TurnOutcome::Skipped(next) => instance = next,
                outcome => break outcome,
            }
            if self.must_end(&mut run) {
                break TurnOutcome::Skipped(instance);
            }
        };
        self.count_turns(u64::from(run.turns));
        let guard = locked.unwrap_or_else(|| self.lock());
        self.end_batch(guard, outcome, batch, unsaved);
    }

    /// Takes the messages that arrived since the last drain. Returns the lock if there are none, so that none arrives
    /// before the batch ends.
    fn take_more(&self, batch: &mut Batch<A>, run: &mut BatchRun) -> Option<CellGuard<'_, A>> {
        let mut guard = self.lock();
        if guard.is_orphaned() || guard.queued() == 0 {
            return Some(guard);
        }
        let cold = guard.cold();
        cold.mailbox.exchange(batch);
        run.room_waiters.append(&mut cold.room_waiters);
        None
    }

    /// Ends a batch. Turns that did not run return to the front of the mailbox. This happens under the lock that makes the
    /// actor available again, so that no message overtakes them.
    fn end_batch(
        &self,
        mut guard: CellGuard<'_, A>,
        outcome: TurnOutcome<A>,
        batch: Batch<A>,
        unsaved: Vec<AnyTurn<A>>,
    ) {
        if guard.is_orphaned() || guard.epoch().is_none() {
            // The activation was discarded during the batch; turns that did not run are rejected.
            self.settle_turn(guard, outcome, unsaved);
            for mut turn in batch {
                turn.as_mut().fail(CallError::NotDelivered(NotDelivered::NotHere));
            }
            return;
        }
        guard.cold().mailbox.give_back(batch);
        self.settle_turn(guard, outcome, unsaved);
    }

    /// Whether the batch must end before its next turn.
    #[inline]
    fn must_end(&self, run: &mut BatchRun) -> bool {
        self.idle.attention() & !(MESSAGES | REPORT) != 0 || self.runtime.scheduler.is_fenced_now() || self.is_long(run)
    }

    /// Whether other cells have waited long enough for this worker. The clock is only read while any waits.
    pub(super) fn is_long(&self, run: &mut BatchRun) -> bool {
        if !self.runtime.scheduler.has_other_work() {
            return false;
        }
        let now = self.runtime.clock.now();
        now.since(*run.others_wait_since.get_or_insert(now)) >= BATCH_TIME_MAX
    }

    pub(super) fn count_turns(&self, turns: u64) {
        self.runtime.turns.fetch_add(turns, Ordering::Relaxed);
    }
}

/// Whether the turn starts interleaving. A shared turn that never suspends can run exclusively instead.
fn begins_interleaving<A>(turn: &AnyTurn<A>) -> bool {
    turn.shared() && turn.may_wait()
}

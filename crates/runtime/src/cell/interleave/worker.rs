//! Interleaved turns that workers run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use elastin_actor::{Handlers, Invoke, Scope, SharedInstance, TurnOwner};
use elastin_types::CallError;

use crate::cell::batch_run::BatchRun;
use crate::cell::interleave::inline::fail_cycles;
use crate::cell::interleave::state::{Interleaved, InterleavedTurn};
use crate::cell::lifecycle::{FREEZE, Flag};
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::CellGuard;
use crate::cell::{ActorCell, drop_contained};
use crate::scheduler::WakeMode;

/// Next step for the interleaved turns of an actor.
enum Step<A> {
    Begin(AnyTurn<A>, Option<Waker>),
    /// Resume a woken turn.
    Resume(InterleavedTurn<A>),
}

/// Result of polling an interleaved turn.
enum StepOutcome<A> {
    Done(AnyTurn<A>, Option<Waker>),
    Pending(InterleavedTurn<A>),
    /// Did not run, or panicked: nothing is left of it.
    Gone(Option<Waker>),
}

/// Waker of one interleaved turn.
struct InterleavedWaker<A: Handlers> {
    cell: Arc<ActorCell<A>>,
    slot: usize,
}

impl<A: Handlers> Wake for InterleavedWaker<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut guard = self.cell.lock();
        let Some(interleaved) = guard.cold_if_any().and_then(|cold| cold.interleaved.as_mut()) else {
            return;
        };
        interleaved.wake(self.slot);
        if !interleaved.polled {
            self.cell.schedule(guard, WakeMode::Later);
        }
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Starts interleaving, because the next message shares the actor, and runs a batch.
    pub(in crate::cell) fn begin_interleaving<'a>(&'a self, mut guard: CellGuard<'a, A>) {
        let instance = guard.take_waiting().expect("the caller checked for a waiting instance");
        let cold = guard.cold();
        let first = cold.mailbox.front().expect("the caller checked the first message");
        cold.interleaved = Some(Box::new(Interleaved::new(first.share_instance(instance), false)));
        self.run_interleaved(guard);
    }

    /// Runs a batch of interleaved turns: polls woken ones and starts new ones.
    pub(in crate::cell) fn run_interleaved<'a>(&'a self, mut guard: CellGuard<'a, A>) {
        let Some(interleaved) = guard.unpolled() else { return };
        interleaved.polled = true;
        let shared = interleaved.shared.clone();
        let mut run = BatchRun::begin(usize::MAX);
        let mut begun = 0;
        while let Some((slot, step)) = self.next_step(&mut guard, &mut run) {
            drop(guard);
            begun += u64::from(matches!(step, Step::Begin(..)));
            let outcome = self.run_step(&shared, step);
            run.turns += 1;
            guard = self.lock();
            if guard.is_orphaned() {
                self.drop_shared(guard, shared);
                return self.reap_step(outcome);
            }
            let (over, refused) = self.settle_step(&mut guard, slot, outcome);
            if over.is_some() || !refused.is_empty() {
                drop(guard);
                fail_cycles(refused);
                over.into_iter().for_each(|turn| self.reply(turn));
                guard = self.lock();
                if guard.is_orphaned() {
                    return self.drop_shared(guard, shared);
                }
            }
            if run.is_long(|| self.runtime.clock.now()) && self.runtime.scheduler.has_other_work() {
                break;
            }
        }
        self.count_turns(begun);
        self.leave_interleaving(guard, shared);
    }

    /// The next step, and the slot of its turn.
    fn next_step(&self, guard: &mut CellGuard<'_, A>, run: &mut BatchRun) -> Option<(usize, Step<A>)> {
        if self.runtime.scheduler.is_fenced_now() {
            return None;
        }
        let actor_woken = guard.set(Flag::Woken, false);
        let cold = guard.cold();
        let interleaved = cold
            .interleaved
            .as_mut()
            .expect("a running batch has interleaved turns");
        if actor_woken {
            interleaved.wake_turns_without_waker();
        }
        if interleaved.lost.is_some() || interleaved.shared.is_broken() {
            return None;
        }
        if let Some(turn) = interleaved.next_joining() {
            let (slot, waker) = self.reserve(interleaved);
            return Some((slot, Step::Begin(turn, waker)));
        }
        if let Some((slot, mut interleaved_turn)) = interleaved.next_woken() {
            if interleaved_turn.waker.is_none() {
                interleaved_turn.waker = interleaved.waker(slot, || self.interleaved_waker(slot));
            }
            return Some((slot, Step::Resume(interleaved_turn)));
        }
        let may_begin = self.attention() & FREEZE == 0 && interleaved.has_room();
        if !may_begin || !cold.mailbox.front().is_some_and(|turn| turn.shared()) {
            return None;
        }
        let turn = cold.mailbox.pop_front().expect("the mailbox was just checked");
        run.room_waiters.append(&mut cold.room_waiters);
        let (slot, waker) = self.reserve(interleaved);
        Some((slot, Step::Begin(turn, waker)))
    }

    /// A slot and a waker for a turn that is about to start.
    fn reserve(&self, interleaved: &mut Interleaved<A>) -> (usize, Option<Waker>) {
        let slot = interleaved.reserve();
        (slot, interleaved.waker(slot, || self.interleaved_waker(slot)))
    }

    fn interleaved_waker(&self, slot: usize) -> Waker {
        let cell = self.arc();
        Waker::from(Arc::new(InterleavedWaker { cell, slot }))
    }

    fn run_step(&self, shared: &SharedInstance, step: Step<A>) -> StepOutcome<A> {
        let actor_waker = shared.instance::<A>().waker();
        let (mut turn, waker, polled) = match step {
            Step::Begin(mut turn, waker) => {
                let Some(message_context) = self.open(&mut turn) else {
                    return StepOutcome::Gone(waker);
                };
                Scope::enter_message(TurnOwner::shared::<A>(shared), message_context, || {
                    turn.arguments_size()
                });
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(actor_waker));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start_shared(shared, &mut cx)));
                (turn, waker, polled)
            }
            Step::Resume(InterleavedTurn { mut turn, scope, waker }) => {
                scope.resume();
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(actor_waker));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx)));
                (turn, waker, polled)
            }
        };
        match polled {
            Ok(Poll::Ready(())) => {
                Scope::end_shared(shared, || turn.method());
                StepOutcome::Done(turn, waker)
            }
            Ok(Poll::Pending) => {
                let scope = Scope::leave();
                StepOutcome::Pending(InterleavedTurn { turn, scope, waker })
            }
            Err(_) => {
                drop(Scope::leave());
                if !turn.read_only() {
                    shared.mark_broken();
                }
                turn.as_mut().fail(CallError::Panicked);
                drop_contained(turn);
                self.panicked(false);
                StepOutcome::Gone(waker)
            }
        }
    }

    /// Stores the result of a step. Returns the turn if its reply may be sent, and calls that would deadlock.
    fn settle_step(
        &self,
        guard: &mut CellGuard<'_, A>,
        slot: usize,
        outcome: StepOutcome<A>,
    ) -> (Option<AnyTurn<A>>, Vec<AnyTurn<A>>) {
        let interleaved = guard.interleaved();
        match outcome {
            StepOutcome::Pending(interleaved_turn) => (None, self.put_interleaved(guard, slot, interleaved_turn)),
            StepOutcome::Gone(waker) => {
                interleaved.release(slot, waker);
                (None, Vec::new())
            }
            StepOutcome::Done(turn, waker) => {
                interleaved.release(slot, waker);
                (self.hold_unsaved(guard, turn), Vec::new())
            }
        }
    }

    fn reap_step(&self, outcome: StepOutcome<A>) {
        match outcome {
            StepOutcome::Done(turn, _) | StepOutcome::Pending(InterleavedTurn { turn, .. }) => self.fail_lost(turn),
            StepOutcome::Gone(_) => {}
        }
    }
}

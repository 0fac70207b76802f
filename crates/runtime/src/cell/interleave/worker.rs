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

/// A turn to be polled next.
struct Step<A> {
    turn: AnyTurn<A>,
    /// The scope of a turn that was woken; `None` if the turn begins.
    scope: Option<Box<Scope>>,
    waker: Waker,
}

/// Result of polling an interleaved turn.
enum StepOutcome<A> {
    Done(AnyTurn<A>),
    Pending(InterleavedTurn<A>),
    /// Did not run, or panicked: nothing is left of it.
    Gone,
}

/// Waker of one interleaved turn.
struct InterleavedWaker<A: Handlers> {
    cell: Arc<ActorCell<A>>,
    number: u64,
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
        interleaved.wake(self.number);
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
        let mut run = BatchRun::default();
        let mut begun = 0;
        while let Some((number, step)) = self.next_step(&mut guard, &mut run) {
            drop(guard);
            begun += u64::from(step.scope.is_none());
            let outcome = self.run_step(&shared, step);
            guard = self.lock();
            if guard.is_orphaned() {
                self.drop_shared(guard, shared);
                return self.reap_step(outcome);
            }
            let (over, refused) = self.settle_step(&mut guard, number, outcome);
            if over.is_some() || !refused.is_empty() {
                drop(guard);
                fail_cycles(refused);
                over.into_iter().for_each(|turn| self.reply(turn));
                guard = self.lock();
                if guard.is_orphaned() {
                    return self.drop_shared(guard, shared);
                }
            }
            if self.is_long(&mut run) {
                break;
            }
        }
        self.count_turns(begun);
        self.leave_interleaving(guard, shared);
    }

    /// The next step, and the number of its turn.
    fn next_step(&self, guard: &mut CellGuard<'_, A>, run: &mut BatchRun) -> Option<(u64, Step<A>)> {
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
        let mut turn = interleaved.next_joining();
        if turn.is_none()
            && let Some((number, InterleavedTurn { turn, scope, waker })) = interleaved.next_woken()
        {
            let waker = waker.unwrap_or_else(|| self.interleaved_waker(number));
            let scope = Some(scope);
            return Some((number, Step { turn, scope, waker }));
        }
        let may_begin = self.idle.attention() & FREEZE == 0 && interleaved.has_room();
        if turn.is_none() && may_begin && cold.mailbox.front().is_some_and(|turn| turn.shared()) {
            turn = cold.mailbox.pop_front();
            run.room_waiters.append(&mut cold.room_waiters);
        }
        let (turn, number) = (turn?, interleaved.begin());
        let (scope, waker) = (None, self.interleaved_waker(number));
        Some((number, Step { turn, scope, waker }))
    }

    fn interleaved_waker(&self, number: u64) -> Waker {
        let cell = self.arc();
        Waker::from(Arc::new(InterleavedWaker { cell, number }))
    }

    fn run_step(&self, shared: &SharedInstance, step: Step<A>) -> StepOutcome<A> {
        let Step { mut turn, scope, waker } = step;
        let mut cx = Context::from_waker(&waker);
        let polled = if let Some(scope) = scope {
            scope.resume();
            catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx)))
        } else {
            let Some(message_context) = self.open(&mut turn) else {
                return StepOutcome::Gone;
            };
            Scope::enter_message(TurnOwner::shared::<A>(shared), message_context, || {
                turn.arguments_size()
            });
            catch_unwind(AssertUnwindSafe(|| turn.as_mut().start_shared(shared, &mut cx)))
        };
        match polled {
            Ok(Poll::Ready(())) => {
                Scope::end_shared(shared, || turn.method());
                StepOutcome::Done(turn)
            }
            Ok(Poll::Pending) => {
                let (scope, waker) = (Scope::leave(), Some(waker));
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
                StepOutcome::Gone
            }
        }
    }

    /// Stores the result of a step. Returns the turn if its reply may be sent, and calls that would deadlock.
    fn settle_step(
        &self,
        guard: &mut CellGuard<'_, A>,
        number: u64,
        outcome: StepOutcome<A>,
    ) -> (Option<AnyTurn<A>>, Vec<AnyTurn<A>>) {
        if let StepOutcome::Pending(interleaved_turn) = outcome {
            return (None, self.put_interleaved(guard, number, interleaved_turn));
        }
        guard.interleaved().end(number);
        match outcome {
            StepOutcome::Done(turn) => (self.hold_unsaved(guard, turn), Vec::new()),
            StepOutcome::Gone | StepOutcome::Pending(_) => (None, Vec::new()),
        }
    }

    fn reap_step(&self, outcome: StepOutcome<A>) {
        match outcome {
            StepOutcome::Done(turn) | StepOutcome::Pending(InterleavedTurn { turn, .. }) => self.fail_lost(turn),
            StepOutcome::Gone => {}
        }
    }
}

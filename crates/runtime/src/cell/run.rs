//! A single turn that a worker starts or resumes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_actor::{Actor, Finished, Handlers, Hook, Instance, Invoke, MessageContext, Persist, Scope, TurnOwner};
use elastin_types::CallError;

use super::{ActorCell, drop_contained};
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::{CellGuard, Suspended};
use crate::scheduler::caller_resume::CallerResume;

/// Result of polling a turn.
pub(super) enum TurnOutcome<A> {
    /// Finished; the reply has not been sent.
    Done(Box<Instance<A>>, AnyTurn<A>),
    /// Did not run: no caller waits for it any longer.
    Skipped(Box<Instance<A>>),
    Pending(Suspended<A>),
    /// Panicked; the state is lost.
    Lost(Option<Hook>),
}

impl<A: Handlers> ActorCell<A> {
    /// Settles an actor after one of its turns was polled. `unsaved` are earlier turns that finished but are not saved.
    pub(super) fn settle_turn(&self, guard: CellGuard<'_, A>, outcome: TurnOutcome<A>, mut unsaved: Vec<AnyTurn<A>>) {
        match outcome {
            TurnOutcome::Done(instance, turn) if saves_each_turn::<A>() && instance.changed => {
                unsaved.push(turn);
                self.save(guard, instance, unsaved);
            }
            TurnOutcome::Done(instance, turn) => {
                let discarded = guard.is_orphaned();
                self.settle(guard, instance);
                if discarded {
                    self.fail_lost(turn);
                } else {
                    self.reply(turn);
                }
            }
            TurnOutcome::Skipped(instance) if !unsaved.is_empty() => self.save(guard, instance, unsaved),
            TurnOutcome::Skipped(instance) => self.settle(guard, instance),
            TurnOutcome::Pending(suspended) => self.suspend_turn(guard, suspended),
            TurnOutcome::Lost(hook) => {
                drop(guard);
                // Their effect is lost with the state.
                unsaved.into_iter().for_each(|turn| self.fail_unsaved(turn));
                // The hook would panic again in the next activation, so the queued calls fail instead.
                self.lose(hook.map(|_| CallError::Panicked));
            }
        }
    }

    /// Settles a suspended turn that was polled again.
    pub(super) fn settle_resumed(&self, outcome: TurnOutcome<A>) {
        match outcome {
            // As if it had never suspended: the lock is only needed if an attention bit is set.
            TurnOutcome::Done(instance, turn) if !(saves_each_turn::<A>() && instance.changed) => {
                match self.finish(instance) {
                    Finished::Lost => self.fail_lost(turn),
                    _ => self.reply(turn),
                }
            }
            outcome => self.settle_turn(self.lock(), outcome, Vec::new()),
        }
    }

    /// Runs a turn from the mailbox until it finishes or suspends.
    pub(super) fn run_turn(&self, mut instance: Box<Instance<A>>, mut turn: AnyTurn<A>) -> TurnOutcome<A> {
        let Some(message_context) = self.open(&mut turn) else {
            return TurnOutcome::Skipped(instance);
        };
        let waker = instance.take_waker();
        Scope::enter_message(TurnOwner::exclusive(&mut instance), message_context, || {
            turn.arguments_size()
        });
        let mut cx = Context::from_waker(&waker);
        let mut returned = Some(instance);
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start(&mut returned, &mut cx)));
        self.leave_turn(turn, waker, returned, polled, || None)
    }

    /// Takes the message context of a turn that is about to run; `None` if no caller waits for it any longer.
    pub(super) fn open(&self, turn: &mut AnyTurn<A>) -> Option<MessageContext> {
        let message_context = turn.as_mut().open()?;
        if message_context.has_expired(|| self.runtime.clock.now()) {
            turn.as_mut().fail(CallError::DeadlineExceeded);
            return None;
        }
        Some(message_context)
    }

    /// Polls a suspended turn, on behalf of its caller if `caller` is given, else of a worker.
    pub(super) fn resume_turn(&self, suspended: Suspended<A>, caller: Option<&Waker>) -> TurnOutcome<A> {
        let Suspended {
            mut turn,
            scope,
            waker,
            caller: resumed_by,
        } = suspended;
        scope.resume();
        let mut cx = Context::from_waker(&waker);
        let mut returned = None;
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut returned, &mut cx)));
        self.leave_turn(turn, waker, returned, polled, || resumed_by?.again(caller))
    }

    #[inline]
    fn leave_turn(
        &self,
        turn: AnyTurn<A>,
        waker: Arc<Waker>,
        instance: Option<Box<Instance<A>>>,
        polled: std::thread::Result<Poll<()>>,
        resumed_by: impl FnOnce() -> Option<CallerResume>,
    ) -> TurnOutcome<A> {
        match polled {
            Ok(Poll::Ready(())) => {
                let mut instance = instance.expect("a finished turn has returned its instance");
                Scope::end(&mut instance, || turn.method());
                instance.restore_waker(waker);
                TurnOutcome::Done(instance, turn)
            }
            Ok(Poll::Pending) => TurnOutcome::Pending(Suspended {
                turn,
                scope: Scope::leave(),
                waker,
                caller: resumed_by(),
            }),
            Err(_) => self.contain_panic(turn, waker, instance),
        }
    }

    #[cold]
    fn contain_panic(
        &self,
        mut turn: AnyTurn<A>,
        waker: Arc<Waker>,
        instance: Option<Box<Instance<A>>>,
    ) -> TurnOutcome<A> {
        self.panicked(false);
        let hook = turn.hook();
        let outcome = match instance {
            // A read-only turn cannot have damaged the state.
            Some(mut instance) if turn.read_only() => {
                Scope::end(&mut instance, || turn.method());
                instance.restore_waker(waker);
                TurnOutcome::Skipped(instance)
            }
            instance => {
                drop(Scope::leave());
                drop_contained(instance);
                TurnOutcome::Lost(hook)
            }
        };
        turn.as_mut().fail(CallError::Panicked);
        drop_contained(turn);
        outcome
    }
}

/// Whether the state is saved before a reply is sent.
pub(super) fn saves_each_turn<A: Actor>() -> bool {
    matches!(A::PERSIST, Persist::EachTurn)
}

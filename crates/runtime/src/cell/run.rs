//! One turn that a worker runs, or goes on with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_actor::{Actor, Finished, Handlers, Hook, Instance, Invoke, Persist, Scope};
use elastin_types::CallError;

use super::{ActorCell, drop_contained};
use crate::cell::flags::Mark;
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::{CellGuard, Suspended};
use crate::cell::suspend::Woken;
use crate::scheduler::caller_resume::ResumeBy;

/// What became of a turn that a worker ran.
pub(super) enum Ran<A> {
    /// It is over; the reply has not left.
    Over(Box<Instance<A>>, AnyTurn<A>),
    /// It did not run: nobody waits for it any longer.
    Skipped(Box<Instance<A>>),
    /// It waits for something. Its scope is still entered.
    Waits(AnyTurn<A>, Arc<Waker>, ResumeBy),
    /// It panicked; the state is lost.
    Lost(Option<Hook>),
}

impl<A: Handlers> ActorCell<A> {
    /// Decides what becomes of an actor and its turn that was polled; says who is to know, if the turn was woken meanwhile.
    /// `unsaved` are turns before it that are over and whose effect is not saved.
    pub(super) fn settle_turn(&self, mailbox: CellGuard<'_, A>, ran: Ran<A>, mut unsaved: Vec<AnyTurn<A>>) -> Woken {
        match ran {
            Ran::Over(instance, turn) if saves_each_turn::<A>() && instance.changed => {
                unsaved.push(turn);
                self.save(mailbox, instance, unsaved);
            }
            Ran::Over(instance, turn) => {
                let discarded = mailbox.is(Mark::Orphan);
                self.settle(mailbox, instance);
                if discarded {
                    self.tell_lost(turn);
                } else {
                    self.reply(turn);
                }
            }
            Ran::Skipped(instance) if !unsaved.is_empty() => self.save(mailbox, instance, unsaved),
            Ran::Skipped(instance) => self.settle(mailbox, instance),
            Ran::Waits(turn, waker, run_by) => {
                let scope = Scope::leave();
                let suspended = Suspended {
                    turn,
                    scope,
                    waker,
                    run_by,
                };
                return self.suspend_turn(mailbox, suspended);
            }
            Ran::Lost(hook) => {
                drop(mailbox);
                // Their effect is lost with the state.
                unsaved.into_iter().for_each(|turn| self.not_saved(turn));
                // A hook would panic again in the next activation: its callers are told instead.
                self.lose(hook.map(|_| CallError::Panicked));
            }
        }
        Woken::Nobody
    }

    /// The same for a turn that had waited and was polled again.
    pub(super) fn settle_resumed(&self, ran: Ran<A>) -> Woken {
        match ran {
            // As if it had not waited: the lock is only needed if something is to be done before the next turn.
            Ran::Over(instance, turn) if !(saves_each_turn::<A>() && instance.changed) => match self.finish(instance) {
                Finished::Lost => self.tell_lost(turn),
                _ => {
                    if let Some(over) = self.reply(turn) {
                        over.keep();
                    }
                }
            },
            ran => return self.settle_turn(self.lock(), ran, Vec::new()),
        }
        Woken::Nobody
    }

    /// Runs a turn out of the mailbox until it is over or waits.
    pub(super) fn run_turn(&self, mut instance: Box<Instance<A>>, mut turn: AnyTurn<A>) -> Ran<A> {
        let Some(message_context) = turn.as_mut().open() else {
            return Ran::Skipped(instance);
        };
        if message_context.has_expired(|| self.shared.clock.now()) {
            turn.as_mut().fail(CallError::DeadlineExceeded);
            return Ran::Skipped(instance);
        }
        let waker = instance.take_waker();
        Scope::enter_message(&mut instance, message_context, || turn.arguments_size());
        let mut cx = Context::from_waker(&waker);
        let mut place = Some(instance);
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start(&mut place, &mut cx)));
        self.leave_turn(turn, waker, place, polled, || ResumeBy::Workers)
    }

    /// Polls a turn that has started: its caller with its waker, or a worker.
    pub(super) fn resume_turn(&self, suspended: Suspended<A>, caller: Option<&Waker>) -> Ran<A> {
        let Suspended {
            mut turn,
            scope,
            waker,
            run_by,
        } = suspended;
        scope.resume();
        let mut cx = Context::from_waker(&waker);
        let mut place = None;
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut place, &mut cx)));
        self.leave_turn(turn, waker, place, polled, || run_by.next(caller))
    }

    #[inline]
    fn leave_turn(
        &self,
        turn: AnyTurn<A>,
        waker: Arc<Waker>,
        instance: Option<Box<Instance<A>>>,
        polled: std::thread::Result<Poll<()>>,
        run_by: impl FnOnce() -> ResumeBy,
    ) -> Ran<A> {
        match polled {
            Ok(Poll::Ready(())) => {
                let mut instance = instance.expect("a turn that is over has given its actor back");
                Scope::end(&mut instance, || turn.method());
                instance.restore_waker(waker);
                Ran::Over(instance, turn)
            }
            Ok(Poll::Pending) => Ran::Waits(turn, waker, run_by()),
            Err(_) => self.contain_panic(turn, waker, instance),
        }
    }

    #[cold]
    fn contain_panic(&self, mut turn: AnyTurn<A>, waker: Arc<Waker>, instance: Option<Box<Instance<A>>>) -> Ran<A> {
        self.count_panic();
        let hook = turn.hook();
        let ran = match instance {
            // It only read the actor, which can go on.
            Some(mut instance) if turn.read_only() => {
                Scope::end(&mut instance, || turn.method());
                instance.restore_waker(waker);
                Ran::Skipped(instance)
            }
            instance => {
                drop(Scope::leave());
                drop_contained(instance);
                Ran::Lost(hook)
            }
        };
        turn.as_mut().fail(CallError::Panicked);
        drop_contained(turn);
        ran
    }
}

/// Whether the state is saved before a reply leaves.
pub(super) fn saves_each_turn<A: Actor>() -> bool {
    matches!(A::PERSIST, Persist::EachTurn)
}

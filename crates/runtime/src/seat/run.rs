//! One turn that a worker runs, or goes on with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_actor::{Actor, Body, Finished, Handlers, Hook, Persist, Scope, Target};
use elastin_types::CallError;

use super::suspend::Woken;
use super::{ActorSeat, drop_contained};
use crate::entrusted::RunBy;
use crate::mailbox::{Mailbox, Suspended};
use crate::marks::Mark;
use crate::queue::AnyTurn;

/// What became of a turn that a worker ran.
pub(super) enum Ran<A> {
    /// It is over; the reply has not left.
    Over(Box<Body<A>>, AnyTurn<A>),
    /// It did not run: nobody waits for it any longer.
    Skipped(Box<Body<A>>),
    /// It waits for something. Its scope is still entered.
    Waits(AnyTurn<A>, Arc<Waker>, RunBy),
    /// It panicked; the state is lost.
    Lost(Option<Hook>),
}

impl<A: Handlers> ActorSeat<A> {
    /// Decides what becomes of an actor and its turn that was polled; says who is to know, if the turn was woken meanwhile.
    /// `unsaved` are turns before it that are over and whose effect is not saved.
    pub(super) fn settle_turn(&self, mailbox: Mailbox<'_, A>, ran: Ran<A>, mut unsaved: Vec<AnyTurn<A>>) -> Woken {
        match ran {
            Ran::Over(body, turn) if saves_each_turn::<A>() && body.changed => {
                unsaved.push(turn);
                self.save(mailbox, body, unsaved);
            }
            Ran::Over(body, turn) => {
                let discarded = mailbox.is(Mark::Orphan);
                self.settle(mailbox, body);
                if discarded {
                    self.tell_lost(turn);
                } else {
                    self.reply(turn);
                }
            }
            Ran::Skipped(body) if !unsaved.is_empty() => self.save(mailbox, body, unsaved),
            Ran::Skipped(body) => self.settle(mailbox, body),
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
            Ran::Over(body, turn) if !(saves_each_turn::<A>() && body.changed) => match self.finish(body) {
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
    pub(super) fn run_turn(&self, mut body: Box<Body<A>>, mut turn: AnyTurn<A>) -> Ran<A> {
        let Some(carried) = turn.as_mut().open() else {
            return Ran::Skipped(body);
        };
        if carried.has_expired(|| self.shared.clock.now()) {
            turn.as_mut().fail(CallError::DeadlineExceeded);
            return Ran::Skipped(body);
        }
        let waker = body.take_waker();
        Scope::enter_message(&mut body, carried, || turn.arguments_size());
        let mut cx = Context::from_waker(&waker);
        let mut place = Some(body);
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start(&mut place, &mut cx)));
        self.leave_turn(turn, waker, place, polled, || RunBy::Workers)
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
        body: Option<Box<Body<A>>>,
        polled: std::thread::Result<Poll<()>>,
        run_by: impl FnOnce() -> RunBy,
    ) -> Ran<A> {
        match polled {
            Ok(Poll::Ready(())) => {
                let mut body = body.expect("a turn that is over has given its actor back");
                Scope::end(&mut body, || turn.method());
                body.restore_waker(waker);
                Ran::Over(body, turn)
            }
            Ok(Poll::Pending) => Ran::Waits(turn, waker, run_by()),
            Err(_) => self.contain_panic(turn, waker, body),
        }
    }

    #[cold]
    fn contain_panic(&self, mut turn: AnyTurn<A>, waker: Arc<Waker>, body: Option<Box<Body<A>>>) -> Ran<A> {
        self.count_panic();
        let hook = turn.hook();
        let ran = match body {
            // It only read the actor, which can go on.
            Some(mut body) if turn.read_only() => {
                Scope::end(&mut body, || turn.method());
                body.restore_waker(waker);
                Ran::Skipped(body)
            }
            body => {
                drop(Scope::leave());
                drop_contained(body);
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

//! Turns that workers run.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use elastin_actor::{Actor, Body, Handlers, Hook, Persist, Scope, expired};
use elastin_types::CallError;
use parking_lot::MutexGuard;

use super::{ActorSeat, END, FREEZE, INACTIVE, ORPHAN, drop_contained};
use crate::mailbox::{AnyTurn, Mailbox, Suspended};
use crate::scheduler::Announce;

/// How many turns a worker runs in one visit to an actor, so that others get theirs.
const TURNS_PER_VISIT: usize = 64;

/// What became of a turn that a worker ran.
enum Ran<A> {
    /// It is over; the reply has not left.
    Over(Box<Body<A>>, AnyTurn<A>),
    /// It did not run: nobody waits for it any longer.
    Skipped(Box<Body<A>>),
    /// It waits for something.
    Waits(Suspended<A>),
    /// It panicked; the state is lost.
    Lost(Option<Hook>),
}

impl<A: Handlers> ActorSeat<A> {
    /// A worker's visit: polls the suspended turn, or runs some turns out of the mailbox.
    pub(super) fn visit(&self) {
        let mut mailbox = self.mailbox.lock();
        mailbox.scheduled = false;
        if let Some(suspended) = mailbox.rest_if_any().and_then(|rest| rest.suspended.take()) {
            mailbox.woken = false;
            drop(mailbox);
            let ran = self.poll_turn(suspended);
            return self.after_turns(ran, VecDeque::new(), Vec::new());
        }
        let Some(body) = mailbox.waiting.take() else { return };
        let batch = take_batch(&mut mailbox.rest().queue);
        drop(mailbox);
        self.run_batch(body, batch);
    }

    fn run_batch(&self, mut body: Box<Body<A>>, mut batch: VecDeque<AnyTurn<A>>) {
        let mut begun = 0;
        // Turns that are over but not saved: one save serves them all.
        let mut unsaved = Vec::new();
        while let Some(turn) = batch.pop_front() {
            // A turn that waits has the body, so nothing could be saved meanwhile. It might even wait for a caller whom one
            // of the unsaved replies would let go on.
            if !unsaved.is_empty() && turn.may_wait() {
                batch.push_front(turn);
                break;
            }
            begun += 1;
            match self.run_turn(body, turn) {
                Ran::Over(next, turn) => {
                    body = next;
                    if saves_each_turn::<A>() && body.changed {
                        unsaved.push(turn);
                    } else {
                        self.reply(turn);
                    }
                }
                Ran::Skipped(next) => body = next,
                ran => {
                    self.count_turns(begun);
                    return self.after_turns(ran, batch, unsaved);
                }
            }
            if self.attention() & (FREEZE | END | INACTIVE | ORPHAN) != 0 {
                break;
            }
        }
        self.count_turns(begun);
        self.after_turns(Ran::Skipped(body), batch, unsaved);
    }

    /// Ends a visit: what was not run goes back to the front of the queue, under the same lock under which the actor
    /// becomes available again, so that nothing overtakes it.
    fn after_turns(&self, ran: Ran<A>, batch: VecDeque<AnyTurn<A>>, mut unsaved: Vec<AnyTurn<A>>) {
        let mut mailbox = self.mailbox.lock();
        let room = match mailbox.rest_if_any() {
            Some(rest) => {
                put_back(&mut rest.queue, batch);
                let has_room = rest.queue.len() < self.shared.settings.mailbox_max;
                if has_room {
                    std::mem::take(&mut rest.room)
                } else {
                    Vec::new()
                }
            }
            None => {
                debug_assert!(batch.is_empty(), "an actor with mail has a place for it");
                Vec::new()
            }
        };
        match ran {
            Ran::Over(body, turn) if saves_each_turn::<A>() && body.changed => {
                unsaved.push(turn);
                self.save(mailbox, body, unsaved);
            }
            Ran::Over(body, turn) => {
                let discarded = mailbox.epoch != Some(body.epoch);
                self.settle(mailbox, body);
                if discarded {
                    self.tell_lost(turn);
                } else {
                    self.reply(turn);
                }
            }
            Ran::Skipped(body) if !unsaved.is_empty() => self.save(mailbox, body, unsaved),
            Ran::Skipped(body) => self.settle(mailbox, body),
            Ran::Waits(suspended) => self.suspend_turn(mailbox, suspended),
            Ran::Lost(hook) => {
                drop(mailbox);
                // Their effect is lost with the state.
                unsaved.into_iter().for_each(|turn| self.not_saved(turn));
                // A hook would panic again in the next activation: its callers are told instead.
                self.lose(hook.map(|_| CallError::Panicked));
            }
        }
        // At the end of the visit, so that producers find room for more than one message.
        for waker in room {
            waker.wake();
        }
    }

    /// Runs a turn out of the mailbox until it is over or waits.
    fn run_turn(&self, mut body: Box<Body<A>>, mut turn: AnyTurn<A>) -> Ran<A> {
        if turn.is_abandoned() {
            return Ran::Skipped(body);
        }
        let header = turn
            .as_mut()
            .take_header()
            .expect("a turn that has not started has its header");
        if header.deadline.is_some() && expired(&header, self.shared.clock.now()) {
            turn.as_mut().fail(CallError::DeadlineExceeded);
            return Ran::Skipped(body);
        }
        let waker = body.take_waker();
        let scope = Scope::of_message(&mut body, turn.method(), header, || turn.arguments_size());
        turn.as_mut().start(body);
        self.poll_turn(Suspended { turn, scope, waker })
    }

    /// Polls a turn that has started.
    fn poll_turn(&self, suspended: Suspended<A>) -> Ran<A> {
        let Suspended { mut turn, scope, waker } = suspended;
        scope.resume();
        let mut cx = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut cx)));
        let scope = Scope::leave();
        match polled {
            Ok(Poll::Ready(mut body)) => {
                scope.finish(&mut body, waker);
                Ran::Over(body, turn)
            }
            Ok(Poll::Pending) => Ran::Waits(Suspended { turn, scope, waker }),
            Err(_) => {
                let hook = turn.hook();
                scope.abandon();
                turn.as_mut().fail(CallError::Panicked);
                drop_contained(turn);
                self.count_panic();
                Ran::Lost(hook)
            }
        }
    }

    /// Keeps a turn that waits for something, until it is woken.
    pub(super) fn suspend_turn(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, suspended: Suspended<A>) {
        let chain = suspended.scope.chain();
        if mailbox.orphan {
            return self.bury_suspended(mailbox, suspended);
        }
        let rest = mailbox.rest();
        rest.suspended = Some(suspended);
        // Calls of this very chain that came while the turn ran would wait for the turn, and it for them.
        let cycles = rest.take_cycles(chain);
        if mailbox.woken {
            self.schedule(mailbox, Announce::Later);
        } else {
            drop(mailbox);
        }
        for mut turn in cycles {
            turn.as_mut().fail(CallError::CallCycle);
        }
    }

    pub(super) fn count_panic(&self) {
        self.shared.panics.fetch_add(1, Ordering::Relaxed);
    }

    fn count_turns(&self, turns: u64) {
        self.shared.turns.fetch_add(turns, Ordering::Relaxed);
    }
}

/// Whether the state is saved before a reply leaves.
fn saves_each_turn<A: Actor>() -> bool {
    matches!(A::PERSIST, Persist::EachTurn)
}

/// Takes what one visit runs. The queue's buffer stays with the actor if there is more.
fn take_batch<T>(queue: &mut VecDeque<T>) -> VecDeque<T> {
    if queue.len() <= TURNS_PER_VISIT {
        return std::mem::take(queue);
    }
    queue.drain(..TURNS_PER_VISIT).collect()
}

/// Puts what was not run back to the front, and keeps the larger buffer.
fn put_back<T>(queue: &mut VecDeque<T>, mut batch: VecDeque<T>) {
    if queue.is_empty() {
        if batch.capacity() > queue.capacity() {
            *queue = batch;
        } else {
            queue.extend(batch);
        }
        return;
    }
    while let Some(turn) = batch.pop_back() {
        queue.push_front(turn);
    }
}

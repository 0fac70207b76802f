//! Turns that share their actor and that workers run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use elastin_actor::{Handlers, Lent, Scope, Target};
use elastin_types::CallError;

use super::sharing::refuse;
use super::visit::Visit;
use super::{ActorSeat, FREEZE, drop_contained};
use crate::mailbox::Mailbox;
use crate::marks::Mark;
use crate::queue::AnyTurn;
use crate::scheduler::Announce;
use crate::sharing::{Sharer, Sharing};

/// What is to be done next for the turns that share an actor.
enum Step<A> {
    /// A turn begins. Who waits for room in the mailbox is woken.
    Begin(AnyTurn<A>, Option<Waker>, Vec<Waker>),
    /// A turn was woken.
    Resume(Sharer<A>),
}

/// What became of a turn that was polled.
enum Ran<A> {
    Over(AnyTurn<A>, Option<Waker>),
    Waits(Sharer<A>),
    /// It did not run, or it panicked: there is nothing left of it.
    Gone(Option<Waker>),
}

/// Wakes one of the turns that share an actor.
struct SharerWaker<A: Handlers> {
    seat: Arc<ActorSeat<A>>,
    place: usize,
}

impl<A: Handlers> Wake for SharerWaker<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut mailbox = self.seat.lock();
        let Some(sharing) = mailbox.rest_if_any().and_then(|rest| rest.sharing.as_mut()) else {
            return;
        };
        sharing.wake(self.place);
        if !sharing.polled {
            self.seat.schedule(mailbox, Announce::Later);
        }
    }
}

impl<A: Handlers> ActorSeat<A> {
    /// Begins to share the actor, whose next message does; runs turns for a while.
    pub(super) fn begin_sharing<'a>(&'a self, mut mailbox: Mailbox<'a, A>) {
        let body = mailbox.take_waiting().expect("an actor that waits for a worker");
        let rest = mailbox.rest();
        let first = rest.queue.front().expect("a message that shares the actor");
        rest.sharing = Some(Box::new(Sharing::new(first.lend(body), false)));
        self.visit_sharers(mailbox);
    }

    /// A worker's visit: polls turns that were woken, and lets others begin.
    pub(super) fn visit_sharers<'a>(&'a self, mut mailbox: Mailbox<'a, A>) {
        let Some(sharing) = mailbox.rest().sharing.as_mut().filter(|sharing| !sharing.polled) else {
            return;
        };
        sharing.polled = true;
        let lent = sharing.lent.clone();
        let mut visit = Visit::begin(usize::MAX, false);
        let (mut begun, mut spare) = (0, None);
        while let Some((place, step)) = self.next_step(&mut mailbox) {
            drop(mailbox);
            begun += u64::from(matches!(step, Step::Begin(..)));
            let ran = self.run_step(&lent, step);
            visit.turns += 1;
            mailbox = self.lock();
            if mailbox.is(Mark::Orphan) {
                self.bury_lent(mailbox, lent);
                return self.bury_ran(ran);
            }
            let (over, refused) = self.settle_step(&mut mailbox, place, ran);
            if over.is_some() || !refused.is_empty() {
                drop(mailbox);
                refuse(refused);
                spare = over.and_then(|turn| self.reply(turn));
                mailbox = self.lock();
                if mailbox.is(Mark::Orphan) {
                    return self.bury_lent(mailbox, lent);
                }
            }
            if let Some(spare) = spare.take() {
                mailbox.rest().queue.keep(spare);
            }
            if visit.is_long(|| self.shared.clock.now()) && self.shared.scheduler.others_wait() {
                break;
            }
        }
        self.count_turns(begun);
        self.leave_sharing(mailbox, lent);
    }

    /// What is to be done next, and the place of the turn.
    fn next_step(&self, mailbox: &mut Mailbox<'_, A>) -> Option<(usize, Step<A>)> {
        if self.shared.scheduler.look_whether_fenced() {
            return None;
        }
        let common = mailbox.set(Mark::Woken, false);
        let rest = mailbox.rest();
        let sharing = rest.sharing.as_mut().expect("who visits knows that it is there");
        if common {
            sharing.wake_common();
        }
        if sharing.lost.is_some() || sharing.lent.is_broken() {
            return None;
        }
        if let Some(turn) = sharing.next_joining() {
            let (place, waker) = self.reserve(sharing);
            return Some((place, Step::Begin(turn, waker, Vec::new())));
        }
        if let Some((place, mut sharer)) = sharing.next_woken() {
            if sharer.waker.is_none() {
                sharer.waker = sharing.waker(place, || self.sharer_waker(place));
            }
            return Some((place, Step::Resume(sharer)));
        }
        let may_begin = self.attention() & FREEZE == 0 && sharing.has_room();
        if !may_begin || !rest.queue.front().is_some_and(|turn| turn.shared()) {
            return None;
        }
        let turn = rest.queue.pop_front().expect("it was just seen");
        let room = std::mem::take(&mut rest.room);
        let (place, waker) = self.reserve(sharing);
        Some((place, Step::Begin(turn, waker, room)))
    }

    /// A place for a turn that is about to begin, and its waker.
    fn reserve(&self, sharing: &mut Sharing<A>) -> (usize, Option<Waker>) {
        let place = sharing.reserve();
        (place, sharing.waker(place, || self.sharer_waker(place)))
    }

    fn sharer_waker(&self, place: usize) -> Waker {
        let seat = self.arc();
        Waker::from(Arc::new(SharerWaker { seat, place }))
    }

    fn run_step(&self, lent: &Lent, step: Step<A>) -> Ran<A> {
        let common = lent.body::<A>().waker();
        let (mut turn, waker, polled) = match step {
            Step::Begin(mut turn, waker, room) => {
                room.into_iter().for_each(Waker::wake);
                let Some(carried) = turn.as_mut().open() else {
                    return Ran::Gone(waker);
                };
                if carried.has_expired(|| self.shared.clock.now()) {
                    turn.as_mut().fail(CallError::DeadlineExceeded);
                    return Ran::Gone(waker);
                }
                Scope::enter_shared_message::<A>(lent, carried, || turn.arguments_size());
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(common));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start_shared(lent, &mut cx)));
                (turn, waker, polled)
            }
            Step::Resume(Sharer { mut turn, scope, waker }) => {
                scope.resume();
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(common));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx)));
                (turn, waker, polled)
            }
        };
        match polled {
            Ok(Poll::Ready(())) => {
                Scope::end_shared(lent, || turn.method());
                Ran::Over(turn, waker)
            }
            Ok(Poll::Pending) => {
                let scope = Scope::leave();
                Ran::Waits(Sharer { turn, scope, waker })
            }
            Err(_) => {
                drop(Scope::leave());
                if !turn.read_only() {
                    lent.mark_broken();
                }
                turn.as_mut().fail(CallError::Panicked);
                drop_contained(turn);
                self.count_panic();
                Ran::Gone(waker)
            }
        }
    }

    /// Takes in what became of a turn. Gives the turn if its reply may leave, and calls that would wait for themselves.
    fn settle_step(
        &self,
        mailbox: &mut Mailbox<'_, A>,
        place: usize,
        ran: Ran<A>,
    ) -> (Option<AnyTurn<A>>, Vec<AnyTurn<A>>) {
        let sharing = mailbox.rest().sharing.as_mut().expect("who polls keeps it there");
        match ran {
            Ran::Waits(sharer) => (None, self.put_sharer(mailbox, place, sharer)),
            Ran::Gone(waker) => {
                sharing.release(place, waker);
                (None, Vec::new())
            }
            Ran::Over(turn, waker) => {
                sharing.release(place, waker);
                (self.hold_unsaved(mailbox, turn), Vec::new())
            }
        }
    }

    fn bury_ran(&self, ran: Ran<A>) {
        match ran {
            Ran::Over(turn, _) | Ran::Waits(Sharer { turn, .. }) => self.tell_lost(turn),
            Ran::Gone(_) => {}
        }
    }
}

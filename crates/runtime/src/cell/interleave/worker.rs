//! Turns that share their actor and that workers run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use elastin_actor::{Handlers, Invoke, Scope, SharedInstance};
use elastin_types::CallError;

use crate::cell::batch_run::BatchRun;
use crate::cell::flags::Mark;
use crate::cell::interleave::inline::refuse;
use crate::cell::interleave::state::{Interleaved, InterleavedTurn};
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::CellGuard;
use crate::cell::{ActorCell, FREEZE, drop_contained};
use crate::scheduler::WakeMode;

/// What is to be done next for the turns that share an actor.
enum Step<A> {
    /// A turn begins. Who waits for room in the mailbox is woken.
    Begin(AnyTurn<A>, Option<Waker>, Vec<Waker>),
    /// A turn was woken.
    Resume(InterleavedTurn<A>),
}

/// What became of a turn that was polled.
enum Ran<A> {
    Over(AnyTurn<A>, Option<Waker>),
    Waits(InterleavedTurn<A>),
    /// It did not run, or it panicked: there is nothing left of it.
    Gone(Option<Waker>),
}

/// Wakes one of the turns that share an actor.
struct InterleavedWaker<A: Handlers> {
    cell: Arc<ActorCell<A>>,
    place: usize,
}

impl<A: Handlers> Wake for InterleavedWaker<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut mailbox = self.cell.lock();
        let Some(sharing) = mailbox.rest_if_any().and_then(|rest| rest.sharing.as_mut()) else {
            return;
        };
        sharing.wake(self.place);
        if !sharing.polled {
            self.cell.schedule(mailbox, WakeMode::Later);
        }
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Begins to share the actor, whose next message does; runs turns for a while.
    pub(in crate::cell) fn begin_sharing<'a>(&'a self, mut mailbox: CellGuard<'a, A>) {
        let instance = mailbox.take_waiting().expect("an actor that waits for a worker");
        let rest = mailbox.rest();
        let first = rest.queue.front().expect("a message that shares the actor");
        rest.sharing = Some(Box::new(Interleaved::new(first.lend(instance), false)));
        self.run_interleaved(mailbox);
    }

    /// A worker's visit: polls turns that were woken, and lets others begin.
    pub(in crate::cell) fn run_interleaved<'a>(&'a self, mut mailbox: CellGuard<'a, A>) {
        let Some(sharing) = mailbox.rest().sharing.as_mut().filter(|sharing| !sharing.polled) else {
            return;
        };
        sharing.polled = true;
        let shared = sharing.shared.clone();
        let mut visit = BatchRun::begin(usize::MAX, false);
        let (mut begun, mut spare) = (0, None);
        while let Some((place, step)) = self.next_step(&mut mailbox) {
            drop(mailbox);
            begun += u64::from(matches!(step, Step::Begin(..)));
            let ran = self.run_step(&shared, step);
            visit.turns += 1;
            mailbox = self.lock();
            if mailbox.is(Mark::Orphan) {
                self.drop_shared(mailbox, shared);
                return self.bury_ran(ran);
            }
            let (over, refused) = self.settle_step(&mut mailbox, place, ran);
            if over.is_some() || !refused.is_empty() {
                drop(mailbox);
                refuse(refused);
                spare = over.and_then(|turn| self.reply(turn));
                mailbox = self.lock();
                if mailbox.is(Mark::Orphan) {
                    return self.drop_shared(mailbox, shared);
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
        self.leave_sharing(mailbox, shared);
    }

    /// What is to be done next, and the place of the turn.
    fn next_step(&self, mailbox: &mut CellGuard<'_, A>) -> Option<(usize, Step<A>)> {
        if self.shared.scheduler.look_whether_fenced() {
            return None;
        }
        let common = mailbox.set(Mark::Woken, false);
        let rest = mailbox.rest();
        let sharing = rest.sharing.as_mut().expect("who visits knows that it is there");
        if common {
            sharing.wake_for_injected();
        }
        if sharing.lost.is_some() || sharing.shared.is_broken() {
            return None;
        }
        if let Some(turn) = sharing.next_joining() {
            let (place, waker) = self.reserve(sharing);
            return Some((place, Step::Begin(turn, waker, Vec::new())));
        }
        if let Some((place, mut interleaved_turn)) = sharing.next_woken() {
            if interleaved_turn.waker.is_none() {
                interleaved_turn.waker = sharing.waker(place, || self.interleaved_waker(place));
            }
            return Some((place, Step::Resume(interleaved_turn)));
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
    fn reserve(&self, sharing: &mut Interleaved<A>) -> (usize, Option<Waker>) {
        let place = sharing.reserve();
        (place, sharing.waker(place, || self.interleaved_waker(place)))
    }

    fn interleaved_waker(&self, place: usize) -> Waker {
        let cell = self.arc();
        Waker::from(Arc::new(InterleavedWaker { cell, place }))
    }

    fn run_step(&self, shared: &SharedInstance, step: Step<A>) -> Ran<A> {
        let common = shared.instance::<A>().waker();
        let (mut turn, waker, polled) = match step {
            Step::Begin(mut turn, waker, room) => {
                room.into_iter().for_each(Waker::wake);
                let Some(message_context) = turn.as_mut().open() else {
                    return Ran::Gone(waker);
                };
                if message_context.has_expired(|| self.shared.clock.now()) {
                    turn.as_mut().fail(CallError::DeadlineExceeded);
                    return Ran::Gone(waker);
                }
                Scope::enter_shared_message::<A>(shared, message_context, || turn.arguments_size());
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(common));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start_shared(shared, &mut cx)));
                (turn, waker, polled)
            }
            Step::Resume(InterleavedTurn { mut turn, scope, waker }) => {
                scope.resume();
                let mut cx = Context::from_waker(waker.as_ref().unwrap_or(common));
                let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx)));
                (turn, waker, polled)
            }
        };
        match polled {
            Ok(Poll::Ready(())) => {
                Scope::end_shared(shared, || turn.method());
                Ran::Over(turn, waker)
            }
            Ok(Poll::Pending) => {
                let scope = Scope::leave();
                Ran::Waits(InterleavedTurn { turn, scope, waker })
            }
            Err(_) => {
                drop(Scope::leave());
                if !turn.read_only() {
                    shared.mark_broken();
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
        mailbox: &mut CellGuard<'_, A>,
        place: usize,
        ran: Ran<A>,
    ) -> (Option<AnyTurn<A>>, Vec<AnyTurn<A>>) {
        let sharing = mailbox.rest().sharing.as_mut().expect("who polls keeps it there");
        match ran {
            Ran::Waits(interleaved_turn) => (None, self.put_interleaved(mailbox, place, interleaved_turn)),
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
            Ran::Over(turn, _) | Ran::Waits(InterleavedTurn { turn, .. }) => self.tell_lost(turn),
            Ran::Gone(_) => {}
        }
    }
}

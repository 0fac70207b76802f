//! A worker's visit to an actor: as many turns in one go as others can wait for.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use elastin_actor::{AtOnce, Handlers, Instance, Invoke, Scope};
use elastin_types::{CallError, NotDelivered, Time};

use super::{ActorCell, END, FREEZE, INACTIVE, ORPHAN, drop_contained};
use crate::cell::flags::Mark;
use crate::cell::mailbox::{AnyTurn, Batch};
use crate::cell::run::{Ran, saves_each_turn};
use crate::cell::state::CellGuard;
use crate::cell::suspend::Woken;

/// How many turns a worker runs in one visit to an actor while others wait for a worker: a full mailbox. An actor that many
/// call at once comes to the end of its mail that way, and goes on with calls that need no mailbox.
const TURNS_PER_BATCH: u32 = 1024;

/// The same while somebody waits for room in the mailbox: messages that are run soon after they are sent are still in the
/// processor's cache. Also after how many turns a worker looks at the clock.
const TURNS_FOR_ROOM: u32 = 128;

/// How long a visit lasts about while others wait for a worker. A turn is never interrupted, so it may last longer.
const BATCH_TIME_MAX: Duration = Duration::from_millis(1);

/// How long a worker waits for more when it has run all that was told: who tells is most likely about to tell more, and finds
/// the actor awake. Each message that found it asleep would cost its sender a wake-up.
const BATCH_SPIN: Duration = Duration::from_micros(2);

/// If fewer than so many have come meanwhile, a worker waits for more before it looks: it is quicker than those who tell. A look for
/// each message would take the mailbox from them every time.
const FEW: usize = 16;

/// How long a visit lasts already.
pub(super) struct BatchRun {
    pub(super) turns: u32,
    turns_max: u32,
    /// It began with one turn, for which the clock is not worth a look.
    single: bool,
    /// How many turns were in the mailbox when the worker last looked.
    found: usize,
    /// When the worker first looked at the clock.
    since: Option<Time>,
    /// Something was told since the worker last waited for more.
    told: bool,
    /// Who is woken at the end.
    room: Vec<Waker>,
}

impl BatchRun {
    /// A visit that begins with so many turns. Brief ones are run to the end of the mail, if that takes no longer than visits
    /// may: then calls need no mailbox again.
    pub(super) fn begin(turns: usize, is_inline_cheap: bool) -> Self {
        Self {
            turns: 0,
            turns_max: if is_inline_cheap { u32::MAX } else { TURNS_PER_BATCH },
            single: turns <= 1,
            found: turns,
            since: None,
            told: false,
            room: Vec::new(),
        }
    }

    /// Whether others should get their turn. Looks at the clock after the first, second, fourth, … turn, so that a visit is
    /// at most twice as long as it should be, and the clock costs little.
    #[inline]
    pub(super) fn is_long(&mut self, now: impl FnOnce() -> Time) -> bool {
        let looks = self.turns.is_power_of_two() || self.turns.is_multiple_of(TURNS_FOR_ROOM);
        if !looks || (self.single && self.turns == 1) {
            return false;
        }
        let now = now();
        self.turns >= self.turns_max || now.since(*self.since.get_or_insert(now)) >= BATCH_TIME_MAX
    }
}

impl<A: Handlers> ActorCell<A> {
    /// A worker's visit: polls the suspended turn, or runs some turns out of the mailbox. Says who is to know, if a turn that waits
    /// was woken meanwhile.
    pub(super) fn visit(&self) -> Woken {
        let mut mailbox = self.lock();
        mailbox.set(Mark::Scheduled, false);
        if mailbox.is(Mark::Orphan) {
            // The cell was scheduled for an activation that is gone; its last turn lets the next one go on.
            return Woken::Nobody;
        }
        if let Some(suspended) = mailbox.rest_if_any().and_then(|rest| rest.suspended.take()) {
            mailbox.set(Mark::Woken, false);
            mailbox.set(Mark::Suspended, false);
            drop(mailbox);
            let ran = self.resume_turn(suspended, None);
            return self.settle_resumed(ran);
        }
        if A::SHARES {
            let rest = mailbox.rest_if_any();
            if rest.is_some_and(|rest| rest.sharing.is_some()) {
                self.run_interleaved(mailbox);
                return Woken::Nobody;
            }
            let front = mailbox.rest_if_any().and_then(|rest| rest.queue.front());
            if front.is_some_and(begins_sharing) && mailbox.is_waiting() {
                self.begin_sharing(mailbox);
                return Woken::Nobody;
            }
        }
        let Some(instance) = mailbox.take_waiting() else {
            return Woken::Nobody;
        };
        let rest = mailbox.rest();
        let batch = rest.queue.take_batch();
        let room = std::mem::take(&mut rest.room);
        drop(mailbox);
        let mut visit = BatchRun::begin(batch.waiting(), self.idle.turns.is_inline_cheap());
        self.make_room(&mut visit, room);
        self.run_batch(instance, batch, visit)
    }

    fn run_batch(&self, mut instance: Box<Instance<A>>, mut batch: Batch<A>, mut visit: BatchRun) -> Woken {
        // Turns that are over but not saved: one save serves them all.
        let mut unsaved = Vec::new();
        let mut locked = None;
        let ran = loop {
            let Some(turn) = batch.next() else {
                // What came meanwhile is part of the visit, unless something is to be done before.
                if unsaved.is_empty() {
                    locked = self.take_more(&mut batch, &mut visit);
                    if locked.is_none() {
                        continue;
                    }
                }
                break Ran::Skipped(instance);
            };
            if A::SHARES && begins_sharing(&turn) {
                batch.put_back(turn);
                break Ran::Skipped(instance);
            }
            // A turn that waits has the instance, so nothing could be saved meanwhile. It might even wait for a caller whom one
            // of the unsaved replies would let go on.
            if !unsaved.is_empty() && turn.may_wait() {
                batch.put_back(turn);
                break Ran::Skipped(instance);
            }
            if !saves_each_turn::<A>() && !turn.may_wait() {
                match self.run_plain_turns(instance, turn, &mut batch, &mut visit) {
                    ControlFlow::Continue(next) => instance = next,
                    ControlFlow::Break(ran) => break ran,
                }
                continue;
            }
            visit.turns += 1;
            match self.run_turn(instance, turn) {
                Ran::Over(next, turn) => {
                    instance = next;
                    if saves_each_turn::<A>() && instance.changed {
                        unsaved.push(turn);
                    } else if let Some(over) = self.reply(turn) {
                        batch.keep(over);
                    }
                }
                Ran::Skipped(next) => instance = next,
                ran => break ran,
            }
            if self.ends(&mut visit) {
                break Ran::Skipped(instance);
            }
        };
        self.count_turns(u64::from(visit.turns));
        let mailbox = locked.unwrap_or_else(|| self.lock());
        let woken = self.end_batch(mailbox, ran, batch, unsaved);
        visit.room.into_iter().for_each(Waker::wake);
        woken
    }

    /// Takes what has come since a batch was taken that is over. If there is nothing, gives the lock: nothing comes then before
    /// the visit has ended.
    fn take_more(&self, batch: &mut Batch<A>, visit: &mut BatchRun) -> Option<CellGuard<'_, A>> {
        if visit.found < FEW && self.may_spin_for_more(visit) && !self.spin_for_more(visit) {
            return Some(self.lock());
        }
        loop {
            let mut mailbox = self.lock();
            if !mailbox.is(Mark::Orphan) && mailbox.queued() > 0 {
                let rest = mailbox.rest();
                rest.queue.exchange(batch);
                visit.found = batch.waiting();
                let room = std::mem::take(&mut rest.room);
                drop(mailbox);
                self.make_room(visit, room);
                return None;
            }
            if !self.may_spin_for_more(visit) {
                return Some(mailbox);
            }
            drop(mailbox);
            if !self.spin_for_more(visit) {
                return Some(self.lock());
            }
        }
    }

    /// Wakes those who wait for room in a mailbox out of which a batch was taken: all at once and before the batch runs, so that
    /// they fill the mailbox again meanwhile. Where turns are brief, only the end of the visit wakes them: then they find the
    /// actor idle, and run what they tell themselves.
    fn make_room(&self, visit: &mut BatchRun, waiting: Vec<Waker>) {
        if self.idle.turns.is_inline_cheap() {
            visit.room.extend(waiting);
            return;
        }
        if waiting.is_empty() {
            return;
        }
        visit.turns_max = TURNS_FOR_ROOM;
        waiting.into_iter().for_each(Waker::wake);
        // They are in the queue of this worker, which has a batch to run first.
        self.shared.scheduler.wake_one();
    }

    /// Whether more of what was told is worth waiting for. Brief turns are run by those who tell them.
    fn may_spin_for_more(&self, visit: &BatchRun) -> bool {
        visit.told && !self.idle.turns.is_inline_cheap() && !self.shared.scheduler.others_wait()
    }

    /// Waits a moment for more of what somebody tells. Says whether the visit may go on.
    fn spin_for_more(&self, visit: &mut BatchRun) -> bool {
        visit.told = false;
        let end = self.shared.clock.now() + BATCH_SPIN;
        while self.shared.clock.now() < end {
            std::hint::spin_loop();
        }
        !self.ends(visit)
    }

    /// Ends a visit: what was not run goes back to the front of the queue, under the same lock under which the actor
    /// becomes available again, so that nothing overtakes it.
    fn end_batch(
        &self,
        mut mailbox: CellGuard<'_, A>,
        ran: Ran<A>,
        batch: Batch<A>,
        unsaved: Vec<AnyTurn<A>>,
    ) -> Woken {
        if mailbox.is(Mark::Orphan) || mailbox.epoch().is_none() {
            // The activation was discarded during the visit, and what was not run has no place here any longer.
            let woken = self.settle_turn(mailbox, ran, unsaved);
            for mut turn in batch.into_waiting() {
                turn.as_mut().fail(CallError::NotDelivered(NotDelivered::NotHere));
            }
            return woken;
        }
        mailbox.rest().queue.give_back(batch);
        self.settle_turn(mailbox, ran, unsaved)
    }

    /// Runs turns that never wait, the one given and those that follow it, in one scope: to enter one for each would cost
    /// more than most of them do themselves. Breaks when the visit is over.
    fn run_plain_turns(
        &self,
        mut instance: Box<Instance<A>>,
        mut turn: AnyTurn<A>,
        batch: &mut Batch<A>,
        visit: &mut BatchRun,
    ) -> ControlFlow<Ran<A>, Box<Instance<A>>> {
        Scope::enter_batch(&mut instance);
        loop {
            match turn.as_mut().run_at_once(&mut instance) {
                AtOnce::Told => {
                    visit.told = true;
                    batch.keep(turn);
                }
                AtOnce::Replies => {
                    if let Some(over) = self.reply(turn) {
                        batch.keep(over);
                    }
                }
                AtOnce::Skipped => drop_contained(turn),
                AtOnce::MayWait => {
                    batch.put_back(turn);
                    Scope::leave_batch(&mut instance);
                    return ControlFlow::Continue(instance);
                }
                AtOnce::Panicked => {
                    visit.turns += 1;
                    return self.contain_plain_panic(instance, turn);
                }
            }
            visit.turns += 1;
            if self.ends(visit) {
                Scope::leave_batch(&mut instance);
                return ControlFlow::Break(Ran::Skipped(instance));
            }
            match batch.next() {
                Some(next) => turn = next,
                None => {
                    Scope::leave_batch(&mut instance);
                    return ControlFlow::Continue(instance);
                }
            }
        }
    }

    /// A turn that never waits panicked within a visit. An actor that it only read goes on.
    #[cold]
    fn contain_plain_panic(
        &self,
        mut instance: Box<Instance<A>>,
        mut turn: AnyTurn<A>,
    ) -> ControlFlow<Ran<A>, Box<Instance<A>>> {
        self.count_panic();
        let then = if turn.read_only() {
            Scope::end_in_batch(&mut instance, || turn.method());
            Scope::leave_batch(&mut instance);
            ControlFlow::Continue(instance)
        } else {
            drop(Scope::leave());
            drop_contained(instance);
            ControlFlow::Break(Ran::Lost(None))
        };
        turn.as_mut().fail(CallError::Panicked);
        drop_contained(turn);
        then
    }

    /// Whether a visit should end before its next turn.
    #[inline]
    fn ends(&self, visit: &mut BatchRun) -> bool {
        self.attention() & (FREEZE | END | INACTIVE | ORPHAN) != 0
            || self.shared.scheduler.look_whether_fenced()
            || (visit.is_long(|| self.shared.clock.now()) && self.shared.scheduler.others_wait())
    }

    pub(super) fn count_turns(&self, turns: u64) {
        self.shared.turns.fetch_add(turns, Ordering::Relaxed);
    }
}

/// Whether a turn waits while others share its actor. One that shares it but never waits can as well have it for itself.
fn begins_sharing<A>(turn: &AnyTurn<A>) -> bool {
    turn.shared() && turn.may_wait()
}

//! An actor's place on this node: where its activations come and go, and where references lead.
//!
//! ```text
//!            inline call                    mailbox
//!                │                             │
//!   take from the idle cell          push under the lock, take the instance
//!   (one atomic swap)                out of the idle cell, schedule
//!                │                             │
//!                ▼                             ▼
//!          run on the caller's          a worker runs a batch
//!          thread, give back                   │
//!                └──────────▶ settle ◀─────────┘
//!                 freeze? mail? end? else idle again
//! ```

mod batch_run;
mod enqueue;
pub(crate) mod erased;
pub(crate) mod flags;
mod freeze;
pub(crate) mod hook_turn;
pub(crate) mod id;
pub(crate) mod idle_slot;
mod inline;
pub(crate) mod interleave;
mod lifecycle;
pub(crate) mod mailbox;
mod report;
mod run;
mod save;
mod spin_wait;
pub(crate) mod state;
mod suspend;
mod timer;
pub(crate) mod turn_cost;

use std::any::Any;
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::Bytes;
use elastin_actor::{
    CellHandle, Handlers, Host, Instance, Invoke, ReminderDone, ReminderRequest, SaveDone, Timer, TimerId, TurnMeasure,
    UsedSince,
};
use elastin_types::{ActivationEpoch, ActorId, Method, NodeId, Time};
use parking_lot::Mutex;

use crate::cell::erased::{ErasedCell, Load, Period};
use crate::cell::flags::Mark;
use crate::cell::id::CellId;
use crate::cell::idle_slot::IdleSlot;
use crate::cell::state::{CellGuard, CellState, Ending};
use crate::inner::RuntimeInner;
use crate::profile::profile_cell::ProfileCell;
use crate::scheduler::{Runnable, Scheduler, WakeMode};
use crate::{ActivateError, FreezeDone, InboundMessage, StateImage};

/// There is mail.
const MAIL: u8 = 1;
/// There is no activation.
const INACTIVE: u8 = 2;
/// A freeze is asked for.
const FREEZE: u8 = 4;
/// The activation is to end.
const END: u8 = 8;
/// A snapshot wants to know the state's size and references after the present turn.
const REPORT: u8 = 16;
/// A turn of a discarded activation still runs.
const ORPHAN: u8 = 32;

/// How many turns go unmeasured at a time without profiling: as many as can be counted.
const UNMEASURED: u16 = u16::MAX;

/// The place of one actor on this node.
// In this order, so that the idle cell and the mailbox's lock are never in the same line of the processor's cache: who sends to an
// actor changes the one, while the worker that runs its turns looks at the other before each of them.
#[repr(C)]
pub(crate) struct ActorCell<A: Handlers> {
    idle: IdleSlot<Instance<A>>,
    id: CellId,
    shared: Arc<RuntimeInner>,
    me: Weak<Self>,
    // Apart from the mailbox, because turns that run inline report here without touching that.
    profile: ProfileCell,
    mailbox: Mutex<CellState<A>>,
}

impl<A: Handlers> ActorCell<A> {
    /// The empty cell of an actor.
    pub(crate) fn make(actor: &ActorId, shared: Arc<RuntimeInner>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            id: CellId::of(actor),
            shared,
            me: me.clone(),
            idle: IdleSlot::new(INACTIVE),
            mailbox: Mutex::new(CellState::new()),
            profile: ProfileCell::default(),
        })
    }

    fn actor(&self) -> ActorId {
        self.id.actor(A::KIND)
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("a cell that is used exists")
    }

    fn lock(&self) -> CellGuard<'_, A> {
        CellGuard::new(self.mailbox.lock(), &self.idle)
    }

    fn attention(&self) -> u8 {
        self.idle.attention()
    }

    fn raise(&self, bits: u8) {
        self.idle.raise(bits);
    }

    fn lower(&self, bits: u8) {
        self.idle.lower(bits);
    }

    /// Decides what becomes of an actor that is between two turns.
    fn settle(&self, mut mailbox: CellGuard<'_, A>, mut instance: Box<Instance<A>>) {
        if mailbox.is(Mark::Orphan) {
            return self.bury(mailbox, instance);
        }
        let attention = self.attention();
        if attention & REPORT != 0 {
            self.lower(REPORT);
            self.note_state(&mut instance);
        }
        if attention & FREEZE != 0 {
            return self.freeze_at_boundary(mailbox, instance);
        }
        if mailbox.queued() > 0 {
            mailbox.rest().waiting = Some(instance);
            return self.schedule(mailbox, WakeMode::Later);
        }
        if attention & END != 0 {
            return self.end(mailbox, instance);
        }
        self.idle.set_attention(0);
        self.idle.put(instance);
    }

    /// Takes the instance out of the idle cell, for somebody who has the lock.
    fn take_idle(&self, mailbox: &CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        // What lies there while a turn of a discarded activation runs can only be that one's instance. Whoever put it there is
        // about to look again, and to bury it.
        match mailbox.is(Mark::Orphan) {
            true => None,
            false => self.idle.take(),
        }
    }

    /// Takes the instance of an activation of which no turn has begun.
    fn take_at_rest(&self, mailbox: &mut CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        self.take_idle(mailbox).or_else(|| mailbox.take_waiting())
    }

    /// Drops the instance of an activation that was discarded during its turn; a later activation may then go on.
    fn bury(&self, mut mailbox: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let next = self.orphan_is_gone(&mut mailbox);
        match next {
            Some(next) => self.settle(mailbox, next),
            None => drop(mailbox),
        }
        drop_contained(instance);
    }

    /// The last turn of a discarded activation is over; gives the instance of the activation that waited for that.
    fn orphan_is_gone(&self, mailbox: &mut CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        mailbox.set(Mark::Orphan, false);
        self.lower(ORPHAN);
        mailbox.take_waiting()
    }

    /// Puts the cell into a run queue if a instance or a woken turn waits for a worker, and it is not there already.
    fn schedule(&self, mut mailbox: CellGuard<'_, A>, announce: WakeMode) {
        if mailbox.is(Mark::Scheduled) || mailbox.is(Mark::Orphan) {
            return;
        }
        mailbox.set(Mark::Scheduled, true);
        drop(mailbox);
        Scheduler::schedule(self.arc(), announce);
    }
}

impl<A: Handlers> CellHandle for ActorCell<A> {
    fn id(&self) -> ActorId {
        self.actor()
    }

    fn is_of(&self, actor: &ActorId) -> bool {
        actor.kind == A::KIND && self.id.is_of(actor)
    }

    fn waker(self: Arc<Self>) -> Waker {
        Waker::from(self)
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    fn node(&self) -> NodeId {
        self.shared.settings.node
    }

    fn host(&self) -> Arc<dyn Host> {
        self.shared.clone()
    }

    fn describe(&self, function: Option<Method>) -> String {
        let schema = &self.shared.schema;
        let Some(function) = function else {
            return schema.show(&self.actor());
        };
        let functions = schema.actor_of(A::KIND).into_iter().flat_map(|kind| &kind.functions);
        let mut functions = functions;
        let known = functions.find(|known| known.method() == function);
        known.map_or_else(|| format!("#{:08x}", function.number()), |known| known.name.clone())
    }

    fn record_turn(&self, turn: &TurnMeasure) -> u16 {
        let settings = &self.shared.settings;
        if !settings.profiling {
            return UNMEASURED;
        }
        let (is_brief, is_short) = (turn.busy < settings.brief_max, turn.busy < settings.short_max);
        self.idle.turns.note(is_brief, is_short);
        self.profile
            .change(|profile| profile.tables(|| self.is_busy()).turn(turn))
    }

    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        self.profile.change(|profile| {
            let tables = profile.tables(|| self.is_busy());
            tables.call(callee, method, bytes, weight);
        });
    }

    fn deactivate(&self) {
        let mut mailbox = self.lock();
        if mailbox.epoch().is_some() && mailbox.rest().ending == Ending::No {
            mailbox.rest().ending = Ending::Asked;
            self.raise(END);
        }
    }

    fn save_state(&self, state: Bytes, done: SaveDone) {
        self.save_during_turn(state, done);
    }

    fn remind(&self, request: ReminderRequest, done: ReminderDone) {
        match request.check(A::NAME, A::takes_reminders()) {
            Ok(()) => self.shared.outside.remind(&self.actor(), request, done),
            Err(error) => done(Err(error)),
        }
    }

    fn start_timer(&self, timer: Timer) -> TimerId {
        self.add_timer(timer)
    }

    fn stop_timer(&self, timer: TimerId) {
        self.remove_timer(timer);
    }
}

impl<A: Handlers> Runnable for ActorCell<A> {
    fn run(self: Arc<Self>) {
        self.visit().pass_on(|| self);
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        &self.shared.scheduler
    }
}

impl<A: Handlers> ErasedCell for ActorCell<A> {
    fn target(self: Arc<Self>) -> Box<dyn Any> {
        let target: Arc<dyn Invoke<A>> = self;
        Box::new(target)
    }

    fn is_empty(&self) -> bool {
        let mailbox = self.lock();
        mailbox.epoch().is_none()
            && !mailbox.is(Mark::Rerouting)
            && !mailbox.is(Mark::Orphan)
            && !mailbox.is(Mark::Scheduled)
    }

    fn epoch(&self) -> Option<ActivationEpoch> {
        self.lock().epoch()
    }

    fn deliver(&self, mail: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>> {
        self.deliver_mail(mail, epoch)
    }

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        mail: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        self.activate_from(epoch, image, mail)
    }

    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        self.ask_freeze(epoch, deadline, done);
    }

    fn resume(&self, epoch: ActivationEpoch) -> bool {
        self.unfreeze(epoch)
    }

    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        self.release_frozen(epoch)
    }

    fn discard(&self, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        self.discard_activation(epoch)
    }

    fn passivate_if_unused(&self) {
        let Some(mut instance) = self.idle.take() else { return };
        instance.forget_waker();
        let unused = !instance.used.take(UsedSince::SWEEP);
        if unused {
            self.deactivate();
            self.lock().shrink();
        }
        self.finish(instance);
    }

    fn deactivate_when_idle(&self) {
        self.deactivate();
        if let Some(instance) = self.idle.take() {
            self.finish(instance);
        }
    }

    fn report(&self, listed: bool, period: Period) -> Option<(Option<elastin_types::ActorStats>, Load)> {
        self.make_report(listed, period)
    }

    fn report_idle(&self, period: Period) -> Option<elastin_types::ActorStats> {
        self.make_idle_report(period)
    }

    fn tear_down(&self) {
        self.tear_down_activation();
    }

    fn is_still(&self) -> bool {
        let mailbox = self.lock();
        if mailbox.is(Mark::Scheduled) || mailbox.is(Mark::Rerouting) || mailbox.is(Mark::Orphan) {
            return false;
        }
        if mailbox.epoch().is_none() || mailbox.waits_for_outside() {
            return true;
        }
        // Nobody has it who runs a turn, if it is where idle ones are.
        let Some(instance) = self.take_idle(&mailbox) else {
            return false;
        };
        drop(mailbox);
        self.finish(instance);
        true
    }

    fn is_at_rest(&self) -> bool {
        let mailbox = self.lock();
        if mailbox.epoch().is_none() {
            return !mailbox.is(Mark::Rerouting);
        }
        if mailbox.queued() > 0 || self.attention() & (MAIL | END | FREEZE) != 0 {
            return false;
        }
        let Some(instance) = self.take_idle(&mailbox) else {
            return false;
        };
        drop(mailbox);
        self.finish(instance);
        true
    }
}

/// Drops what an application's code may panic in the drop of.
fn drop_contained<T>(value: T) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(value))).is_err() {
        tracing::error!("an actor's state panicked when it was dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_small() {
        #[derive(elastin_actor::Actor, serde::Serialize, serde::Deserialize, Default)]
        struct Nothing {}
        #[elastin_actor::handlers]
        impl Nothing {}
        // With what an `Arc` and an allocator add these are 112 and 48 bytes, sizes that allocators have. There are very many.
        assert!(
            size_of::<ActorCell<Nothing>>() <= 88,
            "{}",
            size_of::<ActorCell<Nothing>>()
        );
        assert!(size_of::<Instance<u64>>() <= 40, "{}", size_of::<Instance<u64>>());
        // The count of an `Arc` before it and an allocator's alignment of 16 bytes included, no line of 64 bytes has both.
        let idle = std::mem::offset_of!(ActorCell<Nothing>, idle);
        let mailbox = std::mem::offset_of!(ActorCell<Nothing>, mailbox);
        assert!(mailbox - idle >= 64, "{idle} {mailbox}");
    }

    #[test]
    fn the_idle_cell_is_a_plain_atomic() {
        // Inline calls rely on this for their speed: any other cell would take a lock.
        assert!(crossbeam_utils::atomic::AtomicCell::<Option<Box<u64>>>::is_lock_free());
    }
}

//! The cell of an actor on a node: its activation, its mailbox and its lifecycle. References point to cells.
//!
//! ```text
//!     call, actor idle                 call, actor busy; one-way message
//!            │                                       │
//!   take the instance from               push under the lock, take the
//!   the idle slot (one swap)             instance from the slot, schedule
//!            │                                       │
//!            ▼                                       ▼
//!   run on the caller's thread            a worker runs a batch
//!            └──────────────▶ settle ◀───────────────┘
//!           freeze? run messages? end? else back to idle
//! ```
//!
//! # Path of a message
//!
//! 1. **Inline.** `Invoke::begin` ([`inline`]) takes the instance of an idle actor, and the caller runs the turn itself.
//!    If the actor is busy, the caller may spin for it first ([`spin_wait`]).
//! 2. **Enqueued.** Otherwise `Invoke::post` or [`Runtime::deliver`](crate::Runtime::deliver) enqueues it ([`enqueue`])
//!    in the [`mailbox`]. An inactive actor is activated first ([`lifecycle`]), or the message goes to
//!    [`Remote::send`](crate::Remote::send).
//! 3. **Scheduled.** `ActorCell::schedule` puts the cell into a run queue of the [`scheduler`](crate::scheduler), at most
//!    once ([`Flag::Scheduled`]).
//! 4. **Run.** A worker calls `ActorCell::run_scheduled` ([`batch_run`]), which drains the mailbox; [`run`] polls each turn.
//! 5. **Suspended.** A pending turn waits in the cell. A wake reschedules the cell, or wakes the caller that resumes the
//!    turn ([`suspend`]). Turns of `&self` handlers run [interleaved](interleave).
//! 6. **Answered.** `ActorCell::reply` ([`enqueue`]) sends the reply, after a [`save`] if the actor is persistent, and
//!    deferred while the node is fenced.
//! 7. **Settled.** `ActorCell::settle` decides what the actor does next: [`freeze`], run more messages, end, or idle.

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
use crate::cell::flags::{END, FREEZE, Flag, INACTIVE, MESSAGES, ORPHAN, REPORT};
use crate::cell::id::CellId;
use crate::cell::idle_slot::IdleSlot;
use crate::cell::state::{CellGuard, CellState, Ending};
use crate::inner::RuntimeInner;
use crate::profile::profile_cell::ProfileCell;
use crate::scheduler::{Runnable, Scheduler, WakeMode};
use crate::{ActivateError, FreezeDone, InboundMessage, StateImage};

/// Stride returned without profiling: the largest the counter can hold.
const UNMEASURED: u16 = u16::MAX;

/// The cell of one actor on this node.
// Field order matters: the idle slot and the lock must never share a cache line. Senders write the one, while the
// worker that runs the turns reads the other before each turn.
#[repr(C)]
pub(crate) struct ActorCell<A: Handlers> {
    idle: IdleSlot<Instance<A>>,
    id: CellId,
    runtime: Arc<RuntimeInner>,
    me: Weak<Self>,
    // Outside the lock, because inline turns report here without taking it.
    profile: ProfileCell,
    state: Mutex<CellState<A>>,
}

impl<A: Handlers> ActorCell<A> {
    /// Creates the empty cell of an actor.
    pub(crate) fn make(actor: &ActorId, runtime: Arc<RuntimeInner>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            id: CellId::of(actor),
            runtime,
            me: me.clone(),
            idle: IdleSlot::new(INACTIVE),
            state: Mutex::new(CellState::new()),
            profile: ProfileCell::default(),
        })
    }

    fn actor(&self) -> ActorId {
        self.id.actor(A::KIND)
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("a cell in use is alive")
    }

    fn lock(&self) -> CellGuard<'_, A> {
        CellGuard::new(self.state.lock(), &self.idle)
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

    /// Decides what an actor does between two turns: freeze, run queued messages, end, or become idle.
    fn settle(&self, mut guard: CellGuard<'_, A>, mut instance: Box<Instance<A>>) {
        if guard.is(Flag::Orphan) {
            return self.reap_orphan(guard, instance);
        }
        let attention = self.attention();
        if attention & REPORT != 0 {
            self.lower(REPORT);
            self.note_state(&mut instance);
        }
        if attention & FREEZE != 0 {
            return self.freeze_at_boundary(guard, instance);
        }
        if guard.queued() > 0 {
            guard.cold().waiting = Some(instance);
            return self.schedule(guard, WakeMode::Later);
        }
        if attention & END != 0 {
            return self.end(guard, instance);
        }
        self.idle.set_attention(0);
        self.idle.put(instance);
    }

    /// Takes the instance out of the idle slot. The caller holds the lock.
    fn take_idle(&self, guard: &CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        // While a turn of a discarded activation runs, an instance in the slot can only be that activation's. The
        // thread that put it there is about to recheck and reap it.
        match guard.is(Flag::Orphan) {
            true => None,
            false => self.idle.take(),
        }
    }

    /// Takes the instance of an activation of which no turn has begun.
    fn take_at_rest(&self, guard: &mut CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        self.take_idle(guard).or_else(|| guard.take_waiting())
    }

    /// Drops the instance of an activation that was discarded during its turn; a later activation may then run.
    fn reap_orphan(&self, mut guard: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let next = self.clear_orphan(&mut guard);
        match next {
            Some(next) => self.settle(guard, next),
            None => drop(guard),
        }
        drop_contained(instance);
    }

    /// Records that the last turn of a discarded activation has ended. Returns the instance of the activation that
    /// waited for it.
    fn clear_orphan(&self, guard: &mut CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        guard.set(Flag::Orphan, false);
        self.lower(ORPHAN);
        guard.take_waiting()
    }

    /// Puts the cell into a run queue if an instance or a woken turn waits for a worker, and it is not queued already.
    fn schedule(&self, mut guard: CellGuard<'_, A>, wake: WakeMode) {
        if guard.is(Flag::Scheduled) || guard.is(Flag::Orphan) {
            return;
        }
        guard.set(Flag::Scheduled, true);
        drop(guard);
        Scheduler::schedule(self.arc(), wake);
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
        self.runtime.clock.now()
    }

    fn node(&self) -> NodeId {
        self.runtime.settings.node
    }

    fn host(&self) -> Arc<dyn Host> {
        self.runtime.clone()
    }

    fn describe(&self, function: Option<Method>) -> String {
        let schema = &self.runtime.schema;
        let Some(function) = function else {
            return schema.show(&self.actor());
        };
        let functions = schema.actor_of(A::KIND).into_iter().flat_map(|kind| &kind.functions);
        let mut functions = functions;
        let known = functions.find(|known| known.method() == function);
        known.map_or_else(|| format!("#{:08x}", function.number()), |known| known.name.clone())
    }

    fn record_turn(&self, turn: &TurnMeasure) -> u16 {
        let settings = &self.runtime.settings;
        if !settings.profiling {
            return UNMEASURED;
        }
        let (inline_cheap, resume_cheap) = (
            turn.busy < settings.inline_turn_max,
            turn.busy < settings.resume_turn_max,
        );
        self.idle.turn_cost.record(inline_cheap, resume_cheap);
        self.profile
            .change(|profile| profile.tables(|| self.mark_active()).turn(turn))
    }

    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        self.profile.change(|profile| {
            let tables = profile.tables(|| self.mark_active());
            tables.call(callee, method, bytes, weight);
        });
    }

    fn deactivate(&self) {
        let mut guard = self.lock();
        if guard.epoch().is_some() && guard.cold().ending == Ending::No {
            guard.cold().ending = Ending::Requested;
            self.raise(END);
        }
    }

    fn save_state(&self, state: Bytes, done: SaveDone) {
        self.save_during_turn(state, done);
    }

    fn remind(&self, request: ReminderRequest, done: ReminderDone) {
        match request.check(A::NAME, A::takes_reminders()) {
            Ok(()) => self.runtime.remote.remind(&self.actor(), request, done),
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
        self.run_scheduled().notify(|| self);
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        &self.runtime.scheduler
    }
}

impl<A: Handlers> ErasedCell for ActorCell<A> {
    fn target(self: Arc<Self>) -> Box<dyn Any> {
        let target: Arc<dyn Invoke<A>> = self;
        Box::new(target)
    }

    fn is_empty(&self) -> bool {
        let guard = self.lock();
        guard.epoch().is_none() && !guard.is(Flag::Rerouting) && !guard.is(Flag::Orphan) && !guard.is(Flag::Scheduled)
    }

    fn epoch(&self) -> Option<ActivationEpoch> {
        self.lock().epoch()
    }

    fn deliver(&self, inbound: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>> {
        self.deliver_message(inbound, epoch)
    }

    fn activate(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        messages: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        self.activate_from(epoch, image, messages)
    }

    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        self.request_freeze(epoch, deadline, done);
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
        let guard = self.lock();
        if guard.is(Flag::Scheduled) || guard.is(Flag::Rerouting) || guard.is(Flag::Orphan) {
            return false;
        }
        if guard.epoch().is_none() || guard.waits_externally() {
            return true;
        }
        // An instance in the idle slot means that no thread runs a turn.
        let Some(instance) = self.take_idle(&guard) else {
            return false;
        };
        drop(guard);
        self.finish(instance);
        true
    }

    fn is_at_rest(&self) -> bool {
        let guard = self.lock();
        if guard.epoch().is_none() {
            return !guard.is(Flag::Rerouting);
        }
        if guard.queued() > 0 || self.attention() & (MESSAGES | END | FREEZE) != 0 {
            return false;
        }
        let Some(instance) = self.take_idle(&guard) else {
            return false;
        };
        drop(guard);
        self.finish(instance);
        true
    }
}

/// Drops a value whose `Drop` is application code and may panic.
fn drop_contained<T>(value: T) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(value))).is_err() {
        tracing::error!("the actor's state panicked while being dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_fits_its_size_class() {
        #[derive(elastin_actor::Actor, serde::Serialize, serde::Deserialize, Default)]
        struct Nothing {}
        #[elastin_actor::handlers]
        impl Nothing {}
        // Including the overhead of `Arc` and the allocator these fit the size classes of 112 and 48 bytes. A node
        // holds very many cells.
        assert!(
            size_of::<ActorCell<Nothing>>() <= 88,
            "{}",
            size_of::<ActorCell<Nothing>>()
        );
        assert!(size_of::<Instance<u64>>() <= 40, "{}", size_of::<Instance<u64>>());
        // Even with the `Arc` header and 16-byte alignment, the two never share a 64-byte cache line.
        let idle = std::mem::offset_of!(ActorCell<Nothing>, idle);
        let state = std::mem::offset_of!(ActorCell<Nothing>, state);
        assert!(state - idle >= 64, "{idle} {state}");
    }

    #[test]
    fn the_idle_slot_is_lock_free() {
        // Inline calls rely on this: a fallback implementation would take a lock.
        assert!(crossbeam_utils::atomic::AtomicCell::<Option<Box<u64>>>::is_lock_free());
    }
}

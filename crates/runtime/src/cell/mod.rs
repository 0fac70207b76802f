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
//! 1. **Dispatched.** `Invoke::begin` ([`dispatch`]) decides how the turn runs. Inline, the caller takes the instance of
//!    an idle actor and runs the turn itself. If the actor is busy, the caller may spin for it first ([`spin_wait`]).
//! 2. **Enqueued.** Otherwise `Invoke::post` or [`Runtime::deliver`](crate::Runtime::deliver) enqueues it ([`enqueue`])
//!    in the [`mailbox`]. An inactive actor is activated first ([`activation`]), or the message goes to
//!    [`Remote::send`](crate::Remote::send).
//! 3. **Scheduled.** `ActorCell::schedule` puts the cell into a run queue of the [`scheduler`](crate::scheduler), at most
//!    once ([`Flag::Scheduled`](lifecycle::Flag::Scheduled)).
//! 4. **Run.** A worker calls `ActorCell::run_scheduled` ([`batch_run`]), which drains the mailbox; [`run`] polls each turn.
//! 5. **Suspended.** A pending turn waits in the cell. A wake reschedules the cell, or wakes the caller that resumes the
//!    turn ([`suspend`]). Turns of `&self` handlers run [interleaved](interleave).
//! 6. **Answered.** `ActorCell::reply` ([`enqueue`]) sends the reply, after a [`save`] if the actor is persistent, and
//!    deferred while the node is fenced.
//! 7. **Settled.** `ActorCell::settle` decides what the actor does next: [`freeze`], run more messages, end, or idle.

mod activation;
mod batch_run;
mod dispatch;
mod enqueue;
pub(crate) mod erased;
mod freeze;
mod handle;
pub(crate) mod hook_turn;
pub(crate) mod id;
pub(crate) mod idle_slot;
pub(crate) mod interleave;
pub(crate) mod lifecycle;
pub(crate) mod mailbox;
pub(crate) mod report;
mod run;
mod save;
mod spin_wait;
pub(crate) mod state;
mod suspend;
mod timer;
pub(crate) mod turn_cost;

use std::sync::{Arc, Weak};

use elastin_actor::{Handlers, Instance};
use elastin_types::ActorId;
use parking_lot::Mutex;

use crate::cell::id::CellId;
use crate::cell::idle_slot::IdleSlot;
use crate::cell::lifecycle::{END, FREEZE, INACTIVE, MESSAGES, ORPHAN, REPORT};
use crate::cell::state::{CellGuard, CellState};
use crate::inner::RuntimeInner;
use crate::profile::profile_cell::ProfileCell;
use crate::scheduler::{Runnable, Scheduler, WakeMode};

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

    /// Decides what an actor does between two turns: freeze, run queued messages, end, or become idle.
    fn settle(&self, mut guard: CellGuard<'_, A>, mut instance: Box<Instance<A>>) {
        if guard.is_orphaned() {
            return self.reap_orphan(guard, instance);
        }
        let attention = self.idle.attention();
        if attention & REPORT != 0 {
            self.idle.lower(REPORT);
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
        self.idle.lower(MESSAGES);
        self.idle.put(instance);
    }

    /// Takes the instance out of the idle slot. The caller holds the lock.
    fn take_idle(&self, guard: &CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        // While a turn of a discarded activation runs, an instance in the slot can only be that activation's. The
        // thread that put it there is about to recheck and reap it.
        match guard.is_orphaned() {
            true => None,
            false => self.idle.take(),
        }
    }

    /// Takes the instance of an activation of which no turn has begun.
    fn take_at_rest(&self, guard: &mut CellGuard<'_, A>) -> Option<Box<Instance<A>>> {
        self.take_idle(guard).or_else(|| guard.take_waiting())
    }

    /// Drops the instance of an activation that was discarded during its turn; a later activation may then run.
    fn reap_orphan(&self, guard: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        self.clear_orphan(guard);
        drop_contained(instance);
    }

    /// Records that the last turn of a discarded activation has ended. An activation that waited for it may then run.
    fn clear_orphan(&self, mut guard: CellGuard<'_, A>) {
        self.idle.lower(ORPHAN);
        match guard.take_waiting() {
            Some(next) => self.settle(guard, next),
            None => drop(guard),
        }
    }
}

impl<A: Handlers> Runnable for ActorCell<A> {
    fn run(self: Arc<Self>) {
        self.run_scheduled();
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        &self.runtime.scheduler
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

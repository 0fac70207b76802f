//! Freezing, resuming and releasing an activation: the steps of a move.

use elastin_actor::{Handlers, Hook, Instance, encode_state};
use elastin_types::{ActivationEpoch, Time};

use super::{ActorCell, FREEZE};
use crate::cell::flags::Flag;
use crate::cell::state::{CellGuard, Freeze};
use crate::timers::Due;
use crate::{FreezeDone, FreezeError, InboundMessage, StateImage};

impl<A: Handlers> ActorCell<A> {
    /// Requests a freeze at the next turn boundary.
    pub(super) fn request_freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            drop(guard);
            return done(Err(FreezeError::NotActive));
        }
        if !matches!(guard.cold().freeze, Freeze::No) {
            drop(guard);
            return done(Err(FreezeError::AlreadyFrozen));
        }
        let me = self.me.clone();
        let expire = move || {
            if let Some(cell) = me.upgrade() {
                cell.freeze_expired(deadline);
            }
        };
        let timer = self.runtime.timers.at(deadline, Due::Run(Box::new(expire)));
        guard.cold().freeze = Freeze::Requested {
            done,
            timer,
            hook_queued: false,
        };
        self.raise(FREEZE);
        if guard.is(Flag::Orphan) {
            return;
        }
        if let Some(instance) = self.take_at_rest(&mut guard) {
            self.settle(guard, instance);
        }
    }

    /// Freezes an activation at a turn boundary, after its hook has run.
    pub(super) fn freeze_at_boundary(&self, mut guard: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let Freeze::Requested {
            done,
            timer,
            hook_queued,
        } = std::mem::replace(&mut guard.cold().freeze, Freeze::No)
        else {
            unreachable!("only a requested freeze reaches a turn boundary");
        };
        if !hook_queued && A::hooks().contains(&Hook::BeforeMove) {
            let hook_queued = true;
            guard.cold().freeze = Freeze::Requested {
                done,
                timer,
                hook_queued,
            };
            guard.cold().mailbox.push_front(self.hook_turn(Hook::BeforeMove));
            guard.cold().waiting = Some(instance);
            return self.schedule(guard, crate::scheduler::WakeMode::Now);
        }
        match encode_state(&instance.state) {
            Ok(state) => {
                guard.cold().freeze = Freeze::Frozen(instance);
                drop(guard);
                self.runtime.timers.cancel(timer);
                done(Ok(StateImage { state, moved: true }));
            }
            Err(error) => {
                self.lower(FREEZE);
                self.settle(guard, instance);
                self.runtime.timers.cancel(timer);
                done(Err(error.into()));
            }
        }
    }

    /// Cancels a freeze that missed its deadline.
    fn freeze_expired(&self, deadline: Time) {
        let mut guard = self.lock();
        let Some(cold) = guard.cold_if_any() else { return };
        // A later freeze has a later deadline and its own timer.
        if !matches!(&cold.freeze, Freeze::Requested { timer, .. } if timer.at == deadline) {
            return;
        }
        if let Freeze::Requested { done, .. } = std::mem::replace(&mut cold.freeze, Freeze::No) {
            self.lower(FREEZE);
            self.poll_interleaved(guard);
            done(Err(FreezeError::Busy));
        }
    }

    /// Resumes a frozen activation, or cancels a freeze in progress.
    pub(super) fn unfreeze(&self, epoch: ActivationEpoch) -> bool {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            return false;
        }
        match std::mem::replace(&mut guard.cold().freeze, Freeze::No) {
            Freeze::No => false,
            Freeze::Frozen(instance) => {
                self.lower(FREEZE);
                self.settle(guard, instance);
                true
            }
            Freeze::Requested { done, timer, .. } => {
                self.lower(FREEZE);
                self.poll_interleaved(guard);
                self.runtime.timers.cancel(timer);
                done(Err(FreezeError::Busy));
                true
            }
        }
    }

    /// Ends a frozen activation whose state has moved; returns its messages.
    pub(super) fn release_frozen(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) || !matches!(guard.cold().freeze, Freeze::Frozen(_)) {
            return None;
        }
        self.close(&mut guard);
        let cold = guard.take_cold();
        drop(guard);
        let mailbox = self.clean_up(cold);
        Some(self.encode_turns(mailbox))
    }
}

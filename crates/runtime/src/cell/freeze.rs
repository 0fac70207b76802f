//! Freezing, resuming, releasing and discarding an activation: the steps of a move.

use std::collections::VecDeque;

use elastin_actor::{Handlers, Hook, Instance, encode_state};
use elastin_types::{ActivationEpoch, Time};

use super::{ActorCell, drop_contained};
use crate::cell::lifecycle::{Event, ORPHAN};
use crate::cell::state::{CellGuard, FreezeRequest, Suspended};
use crate::scheduler::WakeMode;
use crate::timers::Due;
use crate::{FreezeDone, FreezeError, InboundMessage, StateImage};

/// The steps of a move, of an activation with this epoch.
pub(crate) trait Movable {
    /// Requests a freeze at the next turn boundary.
    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone);

    /// Resumes a frozen activation, or cancels a freeze in progress. Returns whether there was one.
    fn resume(&self, epoch: ActivationEpoch) -> bool;

    /// Ends a frozen activation whose state has moved; returns its messages.
    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>>;

    /// Drops a superseded activation. Returns the messages that had not begun.
    fn discard(&self, epoch: ActivationEpoch) -> Vec<InboundMessage>;
}

impl<A: Handlers> Movable for ActorCell<A> {
    fn freeze(&self, epoch: ActivationEpoch, deadline: Time, done: FreezeDone) {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            drop(guard);
            return done(Err(FreezeError::NotActive));
        }
        if guard.lifecycle().is_freezing() {
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
        guard.transition(Event::RequestFreeze);
        guard.cold().freeze = Some(FreezeRequest {
            done,
            timer,
            hook_queued: false,
        });
        if guard.is_orphaned() {
            return;
        }
        if let Some(instance) = self.take_at_rest(&mut guard) {
            self.settle(guard, instance);
        }
    }

    fn resume(&self, epoch: ActivationEpoch) -> bool {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            return false;
        }
        let Some(cold) = guard.cold_if_any() else { return false };
        if let Some(freeze) = cold.freeze.take() {
            self.cancel_freeze(guard, freeze);
        } else if let Some(instance) = cold.frozen.take() {
            guard.transition(Event::CancelFreeze);
            self.settle(guard, instance);
        } else {
            return false;
        }
        true
    }

    fn release(&self, epoch: ActivationEpoch) -> Option<Vec<InboundMessage>> {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) || guard.cold_if_any()?.frozen.is_none() {
            return None;
        }
        self.close(&mut guard, Event::End);
        let cold = guard.take_cold();
        drop(guard);
        let mailbox = self.clean_up(cold);
        Some(self.encode_turns(mailbox))
    }

    fn discard(&self, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            return Vec::new();
        }
        self.close(&mut guard, Event::End);
        let mut instance = self.take_at_rest(&mut guard);
        let (mut unfinished, mut suspended, mut interleaved) = (Vec::new(), None, None);
        let mut cold = guard.take_cold();
        if let Some(cold) = &mut cold {
            instance = instance.or(cold.frozen.take());
            if let Some(saving) = cold.saving.take() {
                instance = Some(saving.instance);
                unfinished = saving.turns;
            }
            suspended = cold.suspended.take();
            interleaved = cold.interleaved.take();
        }
        let is_polled = interleaved.as_ref().is_none_or(|interleaved| interleaved.polled);
        // If the instance is in none of these places, a turn is running, of this activation or of an earlier one.
        if instance.is_none() && suspended.is_none() && is_polled {
            self.idle.raise(ORPHAN);
        }
        drop(guard);
        drop_contained(instance);
        if let Some(Suspended { turn, .. }) = suspended {
            unfinished.push(turn);
        }
        let mut joining = VecDeque::new();
        if let Some(interleaved) = interleaved {
            let shared = interleaved.shared.clone();
            let unfinished_turns = interleaved.into_unfinished();
            unfinished.extend(unfinished_turns.waiting.into_iter().chain(unfinished_turns.unsaved));
            joining = unfinished_turns.joining;
            drop_contained(shared);
        }
        // The last of these turns owns the state of a shared actor.
        unfinished.into_iter().for_each(|turn| self.fail_lost(turn));
        let mailbox = self.clean_up(cold);
        self.encode_turns(joining.into_iter().chain(mailbox))
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Freezes an activation at a turn boundary, after its hook has run.
    pub(super) fn freeze_at_boundary(&self, mut guard: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let cold = guard.cold();
        let mut freeze = cold
            .freeze
            .take()
            .expect("only a requested freeze reaches a turn boundary");
        if A::hooks().contains(&Hook::BeforeMove) && !std::mem::replace(&mut freeze.hook_queued, true) {
            cold.freeze = Some(freeze);
            cold.mailbox.push_front(self.hook_turn(Hook::BeforeMove));
            cold.waiting = Some(instance);
            return self.schedule(guard, WakeMode::Now);
        }
        let encoded = encode_state(&instance.state);
        if encoded.is_ok() {
            guard.transition(Event::CompleteFreeze);
            guard.cold().frozen = Some(instance);
            drop(guard);
        } else {
            guard.transition(Event::CancelFreeze);
            self.settle(guard, instance);
        }
        self.runtime.timers.cancel(freeze.timer);
        (freeze.done)(match encoded {
            Ok(state) => Ok(StateImage { state, moved: true }),
            Err(error) => Err(error.into()),
        });
    }

    /// Cancels a freeze that missed its deadline.
    fn freeze_expired(&self, deadline: Time) {
        let mut guard = self.lock();
        // A later freeze has a later deadline and its own timer.
        let is_due = |freeze: &mut FreezeRequest| freeze.timer.at == deadline;
        let expired = guard.cold_if_any().and_then(|cold| cold.freeze.take_if(is_due));
        if let Some(freeze) = expired {
            self.cancel_freeze(guard, freeze);
        }
    }

    fn cancel_freeze(&self, mut guard: CellGuard<'_, A>, freeze: FreezeRequest) {
        guard.transition(Event::CancelFreeze);
        self.poll_interleaved(guard);
        self.runtime.timers.cancel(freeze.timer);
        (freeze.done)(Err(FreezeError::Busy));
    }
}

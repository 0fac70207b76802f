//! Start and end of activations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use elastin_actor::{CellHandle, Handlers, Hook, Instance, Persist, ReplyTo, decode_state};
use elastin_types::{ActivationEpoch, CallError, NotDelivered, Unknown};

use super::enqueue::decode;
use super::{ActorCell, INACTIVE, MESSAGES, ORPHAN, drop_contained};
use crate::cell::flags::Flag;
use crate::cell::hook_turn::HookTurn;
use crate::cell::mailbox::{AnyTurn, Mailbox};
use crate::cell::state::{CellGuard, ColdState, Ending, Freeze, Suspended};
use crate::{ActivateError, FreezeError, InboundMessage, StateImage};

impl<A: Handlers> ActorCell<A> {
    /// Activates the actor, with messages older than any in the mailbox.
    pub(super) fn activate_from(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        messages: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        // Before locking, because decoding takes time and may run any code.
        let moved = image.as_ref().is_some_and(|image| image.moved);
        let state = match image.map_or_else(|| Ok(A::default()), |image| decode_state::<A>(&image.state)) {
            Ok(state) => state,
            Err(error) => return Err((error.into(), messages)),
        };
        let mut guard = self.lock();
        if let Some(active) = guard.epoch() {
            drop(guard);
            drop_contained(state);
            return Err((ActivateError::AlreadyActive(active), messages));
        }
        let cell = self.arc();
        let mut instance = Instance::new(state, cell as Arc<dyn CellHandle>);
        // A moved state exists only in memory until it is saved at passivation.
        instance.changed = moved && matches!(A::PERSIST, Persist::AtPassivation);
        guard.open(epoch, self.runtime.clock.now());
        guard.set(Flag::Woken, false);
        guard.set(Flag::Rerouting, false);
        self.runtime.activations.fetch_add(1, Ordering::Relaxed);
        let refused = self.put_in_front(&mut guard, messages, moved);
        let attention = if guard.queued() > 0 { MESSAGES } else { 0 };
        if guard.is(Flag::Orphan) {
            self.idle.set_attention(attention | ORPHAN);
            guard.cold().waiting = Some(instance);
            drop(guard);
        } else {
            self.idle.set_attention(attention);
            self.settle(guard, instance);
        }
        for (reply, error) in refused {
            reply.complete(Err(error));
        }
        Ok(())
    }

    /// Puts messages and the hook of a new activation in front of the mailbox. Returns the calls that cannot be
    /// decoded.
    fn put_in_front(
        &self,
        guard: &mut CellGuard<'_, A>,
        messages: Vec<InboundMessage>,
        moved: bool,
    ) -> Vec<(Box<ReplyTo>, CallError)> {
        let hook = if moved { Hook::AfterMove } else { Hook::Activate };
        let has_hook = A::hooks().contains(&hook);
        let mut refused = Vec::new();
        if messages.is_empty() && !has_hook {
            return refused;
        }
        let mailbox = &mut guard.cold().mailbox;
        for inbound in messages.into_iter().rev() {
            match decode(&self.runtime, inbound) {
                Ok(turn) => mailbox.push_front(turn),
                Err((Some(reply), error)) => refused.push((reply, error)),
                Err((None, error)) => {
                    tracing::warn!(actor = ?self.actor(), %error, "dropping a message that cannot be decoded")
                }
            }
        }
        if has_hook {
            mailbox.push_front(self.hook_turn(hook));
        }
        refused
    }

    pub(super) fn hook_turn(&self, hook: Hook) -> AnyTurn<A> {
        HookTurn::boxed(hook, &self.actor())
    }

    /// Ends an activation at a turn boundary, after its hook has run.
    pub(super) fn end(&self, mut guard: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let cold = guard.cold();
        if cold.ending != Ending::HookQueued && A::hooks().contains(&Hook::Deactivate) {
            cold.ending = Ending::HookQueued;
            cold.mailbox.push_front(self.hook_turn(Hook::Deactivate));
            return self.settle(guard, instance);
        }
        if matches!(A::PERSIST, Persist::AtPassivation) && instance.changed {
            // Returns here after the save.
            return self.save(guard, instance, Vec::new());
        }
        let epoch = self.close(&mut guard);
        let cold = guard.take_cold();
        drop(guard);
        drop_contained(instance);
        self.clean_up(cold);
        self.notify_passivated(epoch);
    }

    /// Restarts an actor whose state is lost from its last saved state. If it may restart here it keeps its messages;
    /// otherwise they are rejected. With an error it does not restart, and all its messages fail with that error.
    pub(super) fn lose(&self, error: Option<CallError>) {
        let mut guard = self.lock();
        if guard.is(Flag::Orphan) {
            // The activation was discarded while the turn ran, so there is nothing left to lose.
            if let Some(next) = self.clear_orphan(&mut guard) {
                self.settle(guard, next);
            }
            return;
        }
        if let Some(error) = error {
            return self.fail_activation(guard, error);
        }
        let epoch = self.close(&mut guard);
        guard.set(Flag::Rerouting, true);
        let mailbox = guard
            .cold_if_any()
            .map(|cold| std::mem::replace(&mut cold.mailbox, Mailbox::new()));
        let cold = guard.take_cold();
        if let Some(mailbox) = mailbox {
            guard.cold().mailbox = mailbox;
        }
        drop(guard);
        self.clean_up(cold);
        self.notify_passivated(epoch);
        self.reroute();
    }

    /// Restarts a lost activation here if that is allowed. Messages that arrive meanwhile queue behind the existing
    /// ones.
    fn reroute(&self) {
        let grant = if self.runtime.is_stopped() {
            None
        } else {
            self.runtime.remote.may_activate_here(&self.actor())
        };
        if let Some(grant) = grant {
            match self.activate_from(grant.epoch, grant.image, Vec::new()) {
                Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => return,
                Err((error, _)) => {
                    tracing::error!(actor = ?self.actor(), %error, "cannot activate the actor");
                    let error = CallError::NotDelivered(NotDelivered::StateUnavailable);
                    return self.fail_activation(self.lock(), error);
                }
            }
        }
        let mut guard = self.lock();
        if guard.epoch().is_some() {
            return;
        }
        // From here on messages go to the actor's new node, including those of senders about to see the rejection.
        guard.set(Flag::Rerouting, false);
        let cold = guard.take_cold();
        drop(guard);
        // Resending could reorder them behind their senders' later messages, so they are rejected.
        for mut turn in self.clean_up(cold) {
            let error = CallError::NotDelivered(NotDelivered::NotHere);
            self.runtime.when_unfenced(move || turn.as_mut().fail(error));
        }
    }

    /// Ends the activation without a restart: every message in its mailbox fails with the error.
    fn fail_activation(&self, mut guard: CellGuard<'_, A>, error: CallError) {
        let epoch = self.close(&mut guard);
        guard.set(Flag::Rerouting, false);
        let cold = guard.take_cold();
        drop(guard);
        let mailbox = self.clean_up(cold);
        for mut turn in mailbox {
            let error = error.clone();
            self.runtime.when_unfenced(move || turn.as_mut().fail(error));
        }
        self.notify_passivated(epoch);
    }

    /// Drops a superseded activation. Returns the messages that had not begun.
    pub(super) fn discard_activation(&self, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            return Vec::new();
        }
        self.close(&mut guard);
        let mut instance = self.take_at_rest(&mut guard);
        let mut unfinished = Vec::new();
        if let Some(cold) = guard.cold_if_any() {
            if let Freeze::Frozen(_) = cold.freeze
                && let Freeze::Frozen(frozen) = std::mem::replace(&mut cold.freeze, Freeze::No)
            {
                instance = Some(frozen);
            }
            if let Some(saving) = cold.saving.take() {
                instance = Some(saving.instance);
                unfinished = saving.turns;
            }
        }
        let suspended = guard.cold_if_any().and_then(|cold| cold.suspended.take());
        let interleaved = guard.cold_if_any().and_then(|cold| cold.interleaved.take());
        let is_polled = interleaved.as_ref().is_none_or(|interleaved| interleaved.polled);
        // If the instance is in none of these places, a turn is running, of this activation or of an earlier one.
        if instance.is_none() && suspended.is_none() && is_polled {
            guard.set(Flag::Orphan, true);
        }
        if guard.is(Flag::Orphan) {
            self.raise(ORPHAN);
        }
        let cold = guard.take_cold();
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

    /// Drops a turn of a discarded activation that has just suspended.
    pub(super) fn reap_suspended(&self, mut guard: CellGuard<'_, A>, suspended: Suspended<A>) {
        match self.clear_orphan(&mut guard) {
            Some(next) => self.settle(guard, next),
            None => drop(guard),
        }
        self.fail_lost(suspended.turn);
    }

    /// Tears down the activation at shutdown.
    pub(super) fn tear_down_activation(&self) {
        let epoch = self.lock().epoch();
        if let Some(epoch) = epoch {
            for inbound in self.discard_activation(epoch) {
                if let Some(reply) = inbound.reply {
                    reply.complete(Err(CallError::NotDelivered(NotDelivered::ShuttingDown)));
                }
            }
        }
    }

    /// Turns queued calls back into messages.
    pub(super) fn encode_turns(&self, mailbox: impl IntoIterator<Item = AnyTurn<A>>) -> Vec<InboundMessage> {
        let encoded = mailbox
            .into_iter()
            .filter_map(|turn| turn.encode(&self.actor(), &*self.runtime));
        encoded
            .map(|(message, reply)| InboundMessage {
                message: Arc::new(message),
                reply,
            })
            .collect()
    }

    /// Marks the cell as inactive; returns the epoch of the activation that ended.
    pub(super) fn close(&self, guard: &mut CellGuard<'_, A>) -> Option<ActivationEpoch> {
        self.idle.set_attention(INACTIVE);
        guard.set(Flag::Suspended, false);
        guard.set(Flag::Woken, false);
        self.profile.activation_ended();
        let epoch = guard.close();
        if epoch.is_some() {
            self.runtime.activations.fetch_sub(1, Ordering::Relaxed);
        }
        epoch
    }

    /// Cancels the timers and waiters of an ended activation; returns its mailbox.
    pub(super) fn clean_up(&self, cold: Option<Box<ColdState<A>>>) -> Mailbox<A> {
        let Some(cold) = cold else { return Mailbox::new() };
        let cold = *cold;
        for timer in cold.timers.into_values() {
            self.runtime.timers.cancel(timer.wake);
        }
        for waker in cold.room_waiters {
            waker.wake();
        }
        if let Freeze::Requested { done, timer, .. } = cold.freeze {
            self.runtime.timers.cancel(timer);
            done(Err(FreezeError::NotActive));
        }
        cold.mailbox
    }

    fn notify_passivated(&self, epoch: Option<ActivationEpoch>) {
        if let Some(epoch) = epoch {
            self.runtime.remote.passivated(&self.actor(), epoch);
        }
    }

    pub(super) fn fail_lost(&self, mut turn: AnyTurn<A>) {
        turn.as_mut().fail(CallError::Unknown(Unknown::NodeLost));
        drop_contained(turn);
    }
}

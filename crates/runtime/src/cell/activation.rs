//! Start and end of activations.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use elastin_actor::{CellHandle, Handlers, Hook, Instance, Persist, ReplySender, decode_state};
use elastin_types::{ActivationEpoch, CallError, NotDelivered, Unknown};

use super::enqueue::decode;
use super::{ActorCell, drop_contained};
use crate::cell::hook_turn::HookTurn;
use crate::cell::lifecycle::{Event, Flag, Lifecycle, MESSAGES};
use crate::cell::mailbox::{AnyTurn, Mailbox};
use crate::cell::state::{CellGuard, ColdState, Suspended};
use crate::{ActivateError, FreezeError, InboundMessage, StateImage};

impl<A: Handlers> ActorCell<A> {
    /// Activates the actor if that is decided on this node. Returns whether there is an activation now, which another
    /// thread may have begun.
    pub(super) fn activate_here(&self) -> Result<bool, NotDelivered> {
        if self.runtime.is_stopped() {
            return Err(NotDelivered::ShuttingDown);
        }
        let Some(grant) = self.runtime.remote.may_activate_here(&self.actor()) else {
            return Ok(false);
        };
        match self.activate_from(grant.epoch, grant.image, Vec::new()) {
            Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => Ok(true),
            Err((error, _)) => {
                tracing::error!(actor = ?self.actor(), %error, "cannot activate the actor");
                Err(NotDelivered::StateUnavailable)
            }
        }
    }

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
        self.runtime.activations.fetch_add(1, Ordering::Relaxed);
        let refused = self.put_in_front(&mut guard, messages, moved);
        if guard.queued() > 0 {
            self.idle.raise(MESSAGES);
        }
        if guard.is_orphaned() {
            guard.cold().waiting = Some(instance);
            drop(guard);
        } else {
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
    ) -> Vec<(Box<ReplySender>, CallError)> {
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
        if A::hooks().contains(&Hook::Deactivate) && !std::mem::replace(&mut cold.end_hook_queued, true) {
            cold.mailbox.push_front(self.hook_turn(Hook::Deactivate));
            return self.settle(guard, instance);
        }
        if matches!(A::PERSIST, Persist::AtPassivation) && instance.changed {
            // Returns here after the save.
            return self.save(guard, instance, Vec::new());
        }
        let epoch = self.close(&mut guard, Event::End);
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
        if guard.is_orphaned() {
            // The activation was discarded while the turn ran, so there is nothing left to lose.
            return self.clear_orphan(guard);
        }
        let epoch = self.close(&mut guard, if error.is_some() { Event::End } else { Event::Lose });
        let cold = guard.take_cold();
        if let Some(error) = error {
            drop(guard);
            self.fail_queued(cold, &error);
            return self.notify_passivated(epoch);
        }
        // The lock is released only once the mailbox is back, so that no message overtakes the queued ones.
        if let Some(mut cold) = cold {
            guard.cold().mailbox = std::mem::replace(&mut cold.mailbox, Mailbox::new());
            drop(guard);
            self.clean_up(Some(cold));
        } else {
            drop(guard);
        }
        self.notify_passivated(epoch);
        self.reroute();
    }

    /// Restarts a lost activation here if that is allowed. Messages that arrive meanwhile queue behind the existing
    /// ones.
    fn reroute(&self) {
        let why = match self.activate_here() {
            Ok(true) => return,
            Err(NotDelivered::StateUnavailable) => NotDelivered::StateUnavailable,
            // Resending could reorder the messages behind their senders' later ones, so they are rejected.
            Ok(false) | Err(_) => NotDelivered::NotHere,
        };
        let mut guard = self.lock();
        if guard.lifecycle() != Lifecycle::Rerouting {
            return;
        }
        // From here on messages go to the actor's new node, including those of senders about to see the rejection.
        guard.transition(Event::End);
        let cold = guard.take_cold();
        drop(guard);
        self.fail_queued(cold, &CallError::NotDelivered(why));
    }

    /// Fails all messages in the mailbox of an activation that has ended.
    fn fail_queued(&self, cold: Option<Box<ColdState<A>>>, error: &CallError) {
        for mut turn in self.clean_up(cold) {
            let error = error.clone();
            self.runtime.when_unfenced(move || turn.as_mut().fail(error));
        }
    }

    /// Drops a turn of a discarded activation that has just suspended.
    pub(super) fn reap_suspended(&self, guard: CellGuard<'_, A>, suspended: Suspended<A>) {
        self.clear_orphan(guard);
        self.fail_lost(suspended.turn);
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

    /// Ends the activation by this event; returns its epoch.
    pub(super) fn close(&self, guard: &mut CellGuard<'_, A>, event: Event) -> ActivationEpoch {
        let epoch = guard.epoch().expect("only an activation ends");
        guard.transition(event);
        guard.set(Flag::Suspended, false);
        guard.set(Flag::Woken, false);
        self.profile.activation_ended();
        self.runtime.activations.fetch_sub(1, Ordering::Relaxed);
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
        if let Some(freeze) = cold.freeze {
            self.runtime.timers.cancel(freeze.timer);
            (freeze.done)(Err(FreezeError::NotActive));
        }
        cold.mailbox
    }

    fn notify_passivated(&self, epoch: ActivationEpoch) {
        self.runtime.remote.passivated(&self.actor(), epoch);
    }

    pub(super) fn fail_lost(&self, mut turn: AnyTurn<A>) {
        turn.as_mut().fail(CallError::Unknown(Unknown::NodeLost));
        drop_contained(turn);
    }
}

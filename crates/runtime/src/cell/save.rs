//! Saving the state of persistent actors before a change becomes visible.

use bytes::Bytes;
use elastin_actor::{Handlers, Instance, SaveDone, SaveError, StateCodecError, encode_state};
use elastin_types::{ActivationEpoch, CallError, Unknown};

use super::{ActorCell, drop_contained};
use crate::cell::lifecycle::Event;
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::{CellGuard, SaveRequests, Saving};

impl<A: Handlers> ActorCell<A> {
    /// Saves the state after some turns. Their replies are sent, and the next turn starts, once the save completes.
    pub(super) fn save(&self, mut guard: CellGuard<'_, A>, instance: Box<Instance<A>>, turns: Vec<AnyTurn<A>>) {
        let Some(epoch) = guard.epoch().filter(|_| !guard.is_orphaned()) else {
            self.reap_orphan(guard, instance);
            return turns.into_iter().for_each(|turn| self.fail_unsaved(turn));
        };
        let state = encode_state(&instance.state);
        guard.cold().saving = Some(Saving { instance, turns });
        drop(guard);
        self.hand_to_store(epoch, state);
    }

    /// Saves a state that a running turn encoded. One save is in flight at a time. Of the requests that arrive
    /// meanwhile only the last is saved, because it includes the others.
    pub(super) fn save_during_turn(&self, state: Bytes, done: SaveDone) {
        let mut guard = self.lock();
        // While the turn of a discarded activation runs, the epoch may be that of a later activation.
        let Some(epoch) = guard.epoch().filter(|_| !guard.is_orphaned()) else {
            drop(guard);
            return done(Err(SaveError::Superseded));
        };
        match &mut guard.cold().save_requests {
            Some(save_requests) => {
                save_requests.state = Some(state);
                save_requests.done.push(done);
            }
            none => {
                *none = Some(SaveRequests::default());
                drop(guard);
                self.save_requested(epoch, state, vec![done]);
            }
        }
    }

    fn save_requested(&self, epoch: ActivationEpoch, state: Bytes, done: Vec<SaveDone>) {
        let me = self.me.clone();
        let saved = move |result: Result<(), SaveError>| {
            if let Some(cell) = me.upgrade() {
                cell.save_next_requested(epoch);
            }
            done.into_iter().for_each(|done| done(result.clone()));
        };
        self.runtime.remote.save(&self.actor(), epoch, state, Box::new(saved));
    }

    fn save_next_requested(&self, epoch: ActivationEpoch) {
        let mut guard = self.lock();
        if guard.epoch() != Some(epoch) {
            return;
        }
        let Some(cold) = guard.cold_if_any() else { return };
        let Some(save_requests) = cold.save_requests.take() else {
            return;
        };
        if let Some(state) = save_requests.state {
            cold.save_requests = Some(SaveRequests::default());
            drop(guard);
            self.save_requested(epoch, state, save_requests.done);
        }
    }

    /// Saves the state if interleaved turns wait for that and no save is in flight; then polls the turns that can
    /// proceed.
    pub(super) fn save_shared(&self, mut guard: CellGuard<'_, A>) {
        let Some(epoch) = guard.epoch() else { return };
        let Some(interleaved) = &mut guard.cold().interleaved else {
            return;
        };
        if interleaved.unsaved.is_empty() || interleaved.saving.is_some() {
            return self.poll_interleaved(guard);
        }
        interleaved.saving = Some(std::mem::take(&mut interleaved.unsaved));
        interleaved.shared.clear_changed();
        let state = encode_state(&interleaved.shared.instance::<A>().state);
        self.poll_interleaved(guard);
        self.hand_to_store(epoch, state);
    }

    /// Completes a save for interleaved turns.
    fn saved_shared(&self, mut guard: CellGuard<'_, A>, turns: Vec<AnyTurn<A>>, result: Result<(), SaveError>) {
        let interleaved = guard.interleaved();
        if let Err(error) = &result {
            tracing::warn!(actor = ?self.actor(), %error, "saving failed: the actor restarts from its last saved state");
            interleaved.lost = Some(CallError::Unknown(Unknown::NotSaved));
        }
        // A thread that is polling one of them settles the rest.
        if interleaved.polled {
            drop(guard);
        } else {
            let shared = interleaved.shared.clone();
            self.leave_interleaving(guard, shared);
        }
        for turn in turns {
            match result {
                Ok(()) => self.reply(turn),
                Err(_) => self.fail_unsaved(turn),
            }
        }
    }

    /// Saves an encoded state. At most one such save of an activation is in flight.
    fn hand_to_store(&self, epoch: ActivationEpoch, state: Result<Bytes, StateCodecError>) {
        let state = match state {
            Ok(state) => state,
            Err(error) => return self.saved(epoch, Err(error.into())),
        };
        let me = self.me.clone();
        let done = move |result| {
            if let Some(cell) = me.upgrade() {
                cell.saved(epoch, result);
            }
        };
        self.runtime.remote.save(&self.actor(), epoch, state, Box::new(done));
    }

    fn saved(&self, epoch: ActivationEpoch, result: Result<(), SaveError>) {
        let mut guard = self.lock();
        // The activation may have been discarded meanwhile; its callers were notified.
        let is_current = guard.epoch() == Some(epoch);
        let Some(cold) = guard.cold_if_any().filter(|_| is_current) else {
            return;
        };
        if let Some(interleaved) = &mut cold.interleaved
            && let Some(turns) = interleaved.saving.take()
        {
            return self.saved_shared(guard, turns, result);
        }
        let Some(Saving { mut instance, turns }) = cold.saving.take() else {
            return;
        };
        match result {
            Ok(()) => {
                instance.changed = false;
                self.settle(guard, instance);
                turns.into_iter().for_each(|turn| self.reply(turn));
            }
            Err(error) if turns.is_empty() && error != SaveError::Superseded => {
                tracing::warn!(actor = ?self.actor(), %error, "saving an idle actor failed: it stays active and is saved later");
                guard.cold().end_hook_queued = false;
                guard.transition(Event::CancelEnd);
                self.settle(guard, instance);
            }
            Err(error) => {
                drop(guard);
                tracing::warn!(actor = ?self.actor(), %error, "saving failed: the actor restarts from its last saved state");
                drop_contained(instance);
                turns.into_iter().for_each(|turn| self.fail_unsaved(turn));
                self.lose(None);
            }
        }
    }

    pub(super) fn fail_unsaved(&self, mut turn: AnyTurn<A>) {
        self.runtime
            .when_unfenced(move || turn.as_mut().fail(CallError::Unknown(Unknown::NotSaved)));
    }
}

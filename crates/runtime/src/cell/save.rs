//! Saving the state of persistent actors before anyone may know of a change.

use bytes::Bytes;
use elastin_actor::{Handlers, Instance, SaveDone, SaveError, encode_state};
use elastin_types::{ActivationEpoch, CallError, Unknown};

use super::{ActorCell, END, drop_contained};
use crate::cell::flags::Mark;
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::{CellGuard, Ending, Requested, Saving};

impl<A: Handlers> ActorCell<A> {
    /// Saves the state after some turns; their replies leave and the next turn starts when that is done.
    pub(super) fn save(&self, mut mailbox: CellGuard<'_, A>, instance: Box<Instance<A>>, turns: Vec<AnyTurn<A>>) {
        let Some(epoch) = mailbox.epoch().filter(|_| !mailbox.is(Mark::Orphan)) else {
            self.bury(mailbox, instance);
            return turns.into_iter().for_each(|turn| self.not_saved(turn));
        };
        let state = encode_state(&instance.state);
        let rest = mailbox.rest();
        rest.saves += 1;
        let number = rest.saves;
        rest.saving = Some(Saving {
            number,
            epoch,
            instance,
            turns,
        });
        drop(mailbox);
        match state {
            Ok(state) => self.hand_to_store(number, epoch, state),
            Err(error) => self.saved(number, epoch, Err(error.into())),
        }
    }

    /// Saves the state that a running turn has encoded itself. One save at a time: of those that are asked for while one is
    /// under way only the last is made, because it has what the others have.
    pub(super) fn save_during_turn(&self, state: Bytes, done: SaveDone) {
        let mut mailbox = self.lock();
        // While the turn of a discarded activation runs, a later activation waits: the epoch would be that one's.
        let Some(epoch) = mailbox.epoch().filter(|_| !mailbox.is(Mark::Orphan)) else {
            drop(mailbox);
            return done(Err(SaveError::Superseded));
        };
        match &mut mailbox.rest().requested {
            Some(requested) => {
                requested.state = Some(state);
                requested.done.push(done);
            }
            none => {
                *none = Some(Requested::default());
                drop(mailbox);
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
        self.shared.outside.save(&self.actor(), epoch, state, Box::new(saved));
    }

    fn save_next_requested(&self, epoch: ActivationEpoch) {
        let mut mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) {
            return;
        }
        let Some(rest) = mailbox.rest_if_any() else { return };
        let Some(requested) = rest.requested.take() else { return };
        if let Some(state) = requested.state {
            rest.requested = Some(Requested::default());
            drop(mailbox);
            self.save_requested(epoch, state, requested.done);
        }
    }

    /// Saves the state if turns that share the actor wait for that, and none is being saved; lets those turns go on that can.
    pub(super) fn save_shared(&self, mut mailbox: CellGuard<'_, A>) {
        let Some(epoch) = mailbox.epoch() else { return };
        let rest = mailbox.rest();
        let Some(sharing) = &mut rest.sharing else { return };
        if sharing.unsaved.is_empty() || sharing.saving.is_some() {
            return self.poll_interleaved(mailbox);
        }
        rest.saves += 1;
        let number = rest.saves;
        sharing.saving = Some((number, std::mem::take(&mut sharing.unsaved)));
        sharing.shared.clear_changed();
        let state = encode_state(&sharing.shared.instance::<A>().state);
        self.poll_interleaved(mailbox);
        match state {
            Ok(state) => self.hand_to_store(number, epoch, state),
            Err(error) => self.saved(number, epoch, Err(error.into())),
        }
    }

    /// A save for turns that share the actor has ended.
    fn saved_shared(&self, mut mailbox: CellGuard<'_, A>, turns: Vec<AnyTurn<A>>, result: Result<(), SaveError>) {
        let sharing = mailbox.rest().sharing.as_mut().expect("whose save it was");
        if let Err(error) = &result {
            tracing::warn!(actor = ?self.actor(), %error, "a change was not saved: the actor starts again");
            sharing.lost = Some(CallError::Unknown(Unknown::NotSaved));
        }
        // Whoever polls one of them right now sees to the rest.
        if sharing.polled {
            drop(mailbox);
        } else {
            let shared = sharing.shared.clone();
            self.leave_sharing(mailbox, shared);
        }
        for turn in turns {
            match result {
                Ok(()) => drop(self.reply(turn)),
                Err(_) => self.not_saved(turn),
            }
        }
    }

    fn hand_to_store(&self, number: u64, epoch: ActivationEpoch, state: Bytes) {
        let me = self.me.clone();
        let done = move |result| {
            if let Some(cell) = me.upgrade() {
                cell.saved(number, epoch, result);
            }
        };
        self.shared.outside.save(&self.actor(), epoch, state, Box::new(done));
    }

    fn saved(&self, number: u64, epoch: ActivationEpoch, result: Result<(), SaveError>) {
        let mut mailbox = self.lock();
        if mailbox.epoch() == Some(epoch)
            && let Some(rest) = mailbox.rest_if_any()
            && let Some(sharing) = &mut rest.sharing
            && let Some((_, turns)) = sharing.saving.take_if(|(saving, _)| *saving == number)
        {
            return self.saved_shared(mailbox, turns, result);
        }
        let saving = mailbox.rest_if_any().and_then(|rest| {
            rest.saving
                .take_if(|saving| (saving.number, saving.epoch) == (number, epoch))
        });
        // The activation may have been discarded meanwhile; its callers have been told.
        let Some(Saving {
            mut instance, turns, ..
        }) = saving
        else {
            return;
        };
        match result {
            Ok(()) => {
                instance.changed = false;
                self.settle(mailbox, instance);
                turns.into_iter().for_each(|turn| drop(self.reply(turn)));
            }
            Err(error) if turns.is_empty() && error != SaveError::Superseded => {
                tracing::warn!(actor = ?self.actor(), %error, "an idle actor was not saved: it stays, and is saved later");
                mailbox.rest().ending = Ending::No;
                self.lower(END);
                self.settle(mailbox, instance);
            }
            Err(error) => {
                drop(mailbox);
                tracing::warn!(actor = ?self.actor(), %error, "a change was not saved: the actor starts again");
                drop_contained(instance);
                turns.into_iter().for_each(|turn| self.not_saved(turn));
                self.lose(None);
            }
        }
    }

    pub(super) fn not_saved(&self, mut turn: AnyTurn<A>) {
        self.shared
            .when_unfenced(move || turn.as_mut().fail(CallError::Unknown(Unknown::NotSaved)));
    }
}

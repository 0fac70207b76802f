//! Saving the state of persistent actors before anyone may know of a change.

use bytes::Bytes;
use elastin_actor::{Body, Handlers, SaveDone, SaveError, encode_state};
use elastin_types::{ActivationEpoch, CallError, Unknown};
use parking_lot::MutexGuard;

use super::{ActorSeat, END, drop_contained};
use crate::mailbox::{Ending, Mailbox, Saving};
use crate::queue::AnyTurn;

impl<A: Handlers> ActorSeat<A> {
    /// Saves the state after some turns; their replies leave and the next turn starts when that is done.
    pub(super) fn save(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, body: Box<Body<A>>, turns: Vec<AnyTurn<A>>) {
        if mailbox.epoch != Some(body.epoch) {
            self.bury(mailbox, body);
            return turns.into_iter().for_each(|turn| self.not_saved(turn));
        }
        let epoch = body.epoch;
        let state = encode_state(&body.state);
        let rest = mailbox.rest();
        rest.saves += 1;
        let number = rest.saves;
        rest.saving = Some(Saving { number, body, turns });
        drop(mailbox);
        match state {
            Ok(state) => self.hand_to_store(number, epoch, state),
            Err(error) => self.saved(number, epoch, Err(error.into())),
        }
    }

    /// Saves the state that the running turn has encoded itself.
    pub(super) fn save_during_turn(&self, state: Bytes, done: SaveDone) {
        let mailbox = self.mailbox.lock();
        // While the turn of a discarded activation runs, a later activation waits: the epoch would be that one's.
        let epoch = mailbox.epoch.filter(|_| !mailbox.orphan);
        drop(mailbox);
        match epoch {
            Some(epoch) => self.shared.outside.save(&self.id, epoch, state, done),
            None => done(Err(SaveError::Superseded)),
        }
    }

    fn hand_to_store(&self, number: u64, epoch: ActivationEpoch, state: Bytes) {
        let me = self.me.clone();
        let done = move |result| {
            if let Some(seat) = me.upgrade() {
                seat.saved(number, epoch, result);
            }
        };
        self.shared.outside.save(&self.id, epoch, state, Box::new(done));
    }

    fn saved(&self, number: u64, epoch: ActivationEpoch, result: Result<(), SaveError>) {
        let mut mailbox = self.mailbox.lock();
        let saving = mailbox.rest_if_any().and_then(|rest| {
            rest.saving
                .take_if(|saving| (saving.number, saving.body.epoch) == (number, epoch))
        });
        // The activation may have been discarded meanwhile; its callers have been told.
        let Some(Saving { mut body, turns, .. }) = saving else {
            return;
        };
        match result {
            Ok(()) => {
                body.changed = false;
                self.settle(mailbox, body);
                turns.into_iter().for_each(|turn| drop(self.reply(turn)));
            }
            Err(error) if turns.is_empty() && error != SaveError::Superseded => {
                tracing::warn!(actor = ?self.id, %error, "an idle actor was not saved: it stays, and is saved later");
                mailbox.rest().ending = Ending::No;
                self.lower(END);
                self.settle(mailbox, body);
            }
            Err(error) => {
                drop(mailbox);
                tracing::warn!(actor = ?self.id, %error, "a change was not saved: the actor starts again");
                drop_contained(body);
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

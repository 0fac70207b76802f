//! Saving the state of persistent actors before anyone may know of a change.

use bytes::Bytes;
use elastin_actor::{Body, Handlers, encode_state};
use elastin_types::{ActivationEpoch, CallError, Unknown};
use parking_lot::MutexGuard;

use super::{ActorSeat, drop_contained};
use crate::SaveError;
use crate::mailbox::{AnyTurn, Mailbox, Saving};

impl<A: Handlers> ActorSeat<A> {
    /// Saves the state after a turn; the reply leaves and the next turn starts when that is done.
    pub(super) fn save(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, body: Box<Body<A>>, turn: AnyTurn<A>) {
        if mailbox.epoch != Some(body.epoch) {
            self.bury(mailbox, body);
            return self.not_saved(turn);
        }
        let epoch = body.epoch;
        let state = encode_state(&body.state);
        let rest = mailbox.rest();
        rest.saves += 1;
        let number = rest.saves;
        rest.saving = Some(Saving { number, body, turn });
        drop(mailbox);
        match state {
            Ok(state) => self.hand_to_store(number, epoch, state),
            Err(error) => self.saved(number, Err(SaveError::Unavailable(error.to_string()))),
        }
    }

    fn hand_to_store(&self, number: u64, epoch: ActivationEpoch, state: Bytes) {
        let me = self.me.clone();
        let done = move |result| {
            if let Some(seat) = me.upgrade() {
                seat.saved(number, result);
            }
        };
        self.shared.outside.save(&self.id, epoch, state, Box::new(done));
    }

    fn saved(&self, number: u64, result: Result<(), SaveError>) {
        let mut mailbox = self.mailbox.lock();
        let saving = mailbox
            .rest_if_any()
            .and_then(|rest| rest.saving.take_if(|saving| saving.number == number));
        // The activation may have been discarded meanwhile; its caller has been told.
        let Some(Saving { mut body, turn, .. }) = saving else {
            return;
        };
        match result {
            Ok(()) => {
                body.changed = false;
                self.settle(mailbox, body);
                self.reply(turn);
            }
            Err(error) => {
                drop(mailbox);
                tracing::warn!(actor = ?self.id, %error, "a change was not saved: the actor starts again");
                drop_contained(body);
                self.not_saved(turn);
                self.lose(None);
            }
        }
    }

    fn not_saved(&self, mut turn: AnyTurn<A>) {
        self.shared
            .when_unfenced(move || turn.as_mut().fail(CallError::Unknown(Unknown::NotSaved)));
    }
}

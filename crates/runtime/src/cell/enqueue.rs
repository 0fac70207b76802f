//! Enqueueing messages into an actor's mailbox, and sending their replies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Handlers, Host, NotPosted, ReplySender};
use elastin_types::{ActivationEpoch, CallError, Overloaded};

use super::ActorCell;
use crate::InboundMessage;
use crate::cell::lifecycle::{Lifecycle, MESSAGES};
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::CellGuard;
use crate::inner::RuntimeInner;
use crate::scheduler::WakeMode;
use crate::tuning::BACKLOG_REPORTED;

impl<A: Handlers> ActorCell<A> {
    pub(super) fn post_turn(&self, turn: AnyTurn<A>, room_waker: Option<&Waker>) -> Result<(), NotPosted<A>> {
        loop {
            let guard = self.lock();
            if guard.lifecycle() != Lifecycle::Inactive {
                return self.push(guard, turn, room_waker);
            }
            drop(guard);
            match self.activate_here() {
                Ok(true) => {}
                Ok(false) => {
                    self.send_remote(turn);
                    return Ok(());
                }
                Err(why) => return Err((CallError::NotDelivered(why), turn)),
            }
        }
    }

    /// Enqueues a turn into the mailbox of an active actor.
    #[inline]
    pub(super) fn push(
        &self,
        mut guard: CellGuard<'_, A>,
        turn: AnyTurn<A>,
        room_waker: Option<&Waker>,
    ) -> Result<(), NotPosted<A>> {
        let message_context = turn.message_context();
        let message_context = message_context.expect("a turn that has not started has its message context");
        let one_way = message_context.one_way();
        if !one_way
            && let Some(chain) = message_context.chain()
            && let Some(cold) = guard.cold_if_any()
            && cold.belongs(chain)
        {
            return self.push_into_cycle(guard, turn);
        }
        let cold = guard.cold();
        if cold.mailbox.len() >= self.runtime.settings.mailbox_max {
            if let Some(room_waker) = room_waker
                && !cold.room_waiters.iter().any(|known| known.will_wake(room_waker))
            {
                cold.room_waiters.push(room_waker.clone());
            }
            self.runtime.overloads.fetch_add(1, Ordering::Relaxed);
            return Err((CallError::Overloaded(Overloaded::Actor), turn));
        }
        cold.mailbox.push(turn);
        let queued = cold.mailbox.len();
        // If there were messages before, the holder of the instance knows already.
        if self.idle.attention() & MESSAGES == 0 {
            // Under the lock: a later inline call of the same sender must see that an earlier message is queued.
            self.idle.raise(MESSAGES);
            if let Some(instance) = self.take_idle(&guard) {
                guard.cold().waiting = Some(instance);
            }
        }
        // A caller waits for its reply, so its thread can run this actor. The sender of a one-way message carries on.
        let wake = if one_way { WakeMode::Now } else { WakeMode::Later };
        if guard.is_waiting() || self.may_begin_shared(&mut guard) {
            self.schedule(guard, wake);
        } else {
            drop(guard);
        }
        if queued == BACKLOG_REPORTED {
            self.profile.change(|profile| {
                profile.tables(|| self.mark_active());
            });
        }
        Ok(())
    }

    /// Sends a turn to the node that hosts the actor.
    pub(super) fn send_remote(&self, turn: AnyTurn<A>) {
        if let Some((message, reply)) = turn.encode(&self.actor(), &*self.runtime) {
            self.runtime.send(Arc::new(message), reply);
        }
    }

    /// Sends a turn's reply. While the node is fenced the reply is deferred.
    #[inline]
    pub(super) fn reply(&self, mut turn: AnyTurn<A>) {
        self.runtime.when_unfenced(move || turn.as_mut().reply());
    }

    /// Enqueues an inbound message for the local activation with this epoch.
    pub(super) fn deliver_message(
        &self,
        inbound: InboundMessage,
        epoch: ActivationEpoch,
    ) -> Result<(), Box<InboundMessage>> {
        if self.lock().epoch() != Some(epoch) {
            return Err(Box::new(inbound));
        }
        let turn = match decode::<A>(&self.runtime, inbound) {
            Ok(turn) => turn,
            Err((reply, error)) => {
                match reply {
                    Some(reply) => reply.complete(Err(error)),
                    None => tracing::warn!(actor = ?self.actor(), %error, "dropping a message that cannot be decoded"),
                }
                return Ok(());
            }
        };
        let guard = self.lock();
        if guard.epoch() != Some(epoch) {
            drop(guard);
            return match turn.encode(&self.actor(), &*self.runtime) {
                Some((message, reply)) => Err(Box::new(InboundMessage {
                    message: Arc::new(message),
                    reply,
                })),
                None => Ok(()),
            };
        }
        if let Err((error, mut turn)) = self.push(guard, turn, None) {
            turn.as_mut().fail(error);
        }
        Ok(())
    }
}

/// Decodes an inbound message into a turn.
pub(super) fn decode<A: Handlers>(
    runtime: &Arc<RuntimeInner>,
    inbound: InboundMessage,
) -> Result<AnyTurn<A>, (Option<Box<ReplySender>>, CallError)> {
    let InboundMessage { message, reply } = inbound;
    let header = &message.header;
    let by_host = || (!header.one_way).then(|| ReplySender::host(runtime.clone(), header.call));
    let reply = reply.or_else(by_host).map(Box::new);
    A::decode(message, reply).map_err(|undecoded| (undecoded.reply, CallError::Rejected(undecoded.why)))
}

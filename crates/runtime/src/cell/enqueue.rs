//! How messages come into an actor's mailbox, and leave it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use elastin_actor::{Handlers, Host, Made, Posted, ReplyTo};
use elastin_types::{ActivationEpoch, CallError, NotDelivered, Overloaded};

use super::{ActorCell, MAIL};
use crate::cell::flags::Mark;
use crate::cell::mailbox::AnyTurn;
use crate::cell::state::CellGuard;
use crate::inner::RuntimeInner;
use crate::scheduler::WakeMode;
use crate::{ActivateError, InboundMessage};

/// How many messages come together in a mailbox before another worker is woken for a tell.
const NUDGE_AT: usize = 16;

impl<A: Handlers> ActorCell<A> {
    pub(super) fn post_call(&self, call: &mut dyn Posted<A>, room: Option<&Waker>) -> Result<(), CallError> {
        loop {
            let mailbox = self.lock();
            if mailbox.epoch().is_some() || mailbox.is(Mark::Rerouting) {
                return self.push(mailbox, call, room);
            }
            drop(mailbox);
            if self.shared.is_stopped() {
                return Err(CallError::NotDelivered(NotDelivered::ShuttingDown));
            }
            let Some(grant) = self.shared.outside.may_activate_here(&self.actor()) else {
                self.send_out(call.boxed());
                return Ok(());
            };
            match self.activate_from(grant.epoch, grant.image, Vec::new()) {
                Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => {}
                Err((error, _)) => {
                    tracing::error!(actor = ?self.actor(), %error, "an actor can't be activated");
                    return Err(CallError::NotDelivered(NotDelivered::StateUnavailable));
                }
            }
        }
    }

    /// Puts a call into the mailbox of an active actor.
    #[inline]
    pub(super) fn push(
        &self,
        mut mailbox: CellGuard<'_, A>,
        call: &mut dyn Posted<A>,
        room: Option<&Waker>,
    ) -> Result<(), CallError> {
        let message_context = call.message_context();
        let one_way = message_context.one_way();
        if !one_way
            && let Some(chain) = message_context.chain()
            && let Some(rest) = mailbox.rest_if_any()
            && rest.belongs(chain)
        {
            return self.push_into_cycle(mailbox, call);
        }
        let rest = mailbox.rest();
        if rest.queue.len() >= self.shared.settings.mailbox_max {
            if let Some(room) = room
                && !rest.room.iter().any(|known| known.will_wake(room))
            {
                rest.room.push(room.clone());
            }
            self.shared.overloads.fetch_add(1, Ordering::Relaxed);
            return Err(CallError::Overloaded(Overloaded::Actor));
        }
        rest.queue.push(call);
        let queued = rest.queue.len();
        // Where there was mail before, whoever has the instance knows already.
        if self.attention() & MAIL == 0 {
            // Inside the lock: an inline call that the sender makes after this must see that there is mail before it.
            self.raise(MAIL);
            if let Some(instance) = self.take_idle(&mailbox) {
                mailbox.rest().waiting = Some(instance);
            }
        }
        // Who calls waits, and its thread is free for this actor. Who tells goes on: when some mail has come together,
        // another worker should begin with it, but not for every single message.
        let has_gathered = one_way && queued == NUDGE_AT;
        let is_awaited = mailbox.is_waiting() || self.may_begin_shared(&mut mailbox);
        if is_awaited && !mailbox.is(Mark::Scheduled) {
            self.schedule(mailbox, if has_gathered { WakeMode::Now } else { WakeMode::Later });
        } else {
            drop(mailbox);
        }
        if has_gathered {
            // Its backlog counts, even if no turn of it ends in this period.
            self.profile.change(|profile| {
                profile.tables(|| self.is_busy());
            });
            // Whoever runs it right now sees the mail.
            if is_awaited {
                self.shared.scheduler.wake_one();
            }
        }
        Ok(())
    }

    /// Sends a turn to wherever the actor is.
    pub(super) fn send_out(&self, turn: AnyTurn<A>) {
        if let Some((message, reply)) = turn.encode(&self.actor(), &*self.shared) {
            self.shared.send(Arc::new(message), reply);
        }
    }

    /// Sends a turn's reply and gives back the turn, unless the node is fenced: then the reply leaves later.
    #[inline]
    pub(super) fn reply(&self, mut turn: AnyTurn<A>) -> Option<AnyTurn<A>> {
        if self.shared.scheduler.is_fenced() {
            self.shared.when_unfenced(move || turn.as_mut().reply());
            return None;
        }
        turn.as_mut().reply();
        Some(turn)
    }

    /// InboundMessage from elsewhere for an activation that is here.
    pub(super) fn deliver_mail(&self, mail: InboundMessage, epoch: ActivationEpoch) -> Result<(), Box<InboundMessage>> {
        if self.lock().epoch() != Some(epoch) {
            return Err(Box::new(mail));
        }
        let turn = match decode::<A>(&self.shared, mail) {
            Ok(turn) => turn,
            Err((reply, error)) => {
                match reply {
                    Some(reply) => reply.complete(Err(error)),
                    None => tracing::warn!(actor = ?self.actor(), %error, "a message can't be run"),
                }
                return Ok(());
            }
        };
        let mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) {
            drop(mailbox);
            return match turn.encode(&self.actor(), &*self.shared) {
                Some((message, reply)) => Err(Box::new(InboundMessage {
                    message: Arc::new(message),
                    reply,
                })),
                None => Ok(()),
            };
        }
        let mut made = Made::new(turn);
        if let Err(why) = self.push(mailbox, &mut made, None)
            && let Some(mut turn) = made.into_turn()
        {
            turn.as_mut().fail(why);
        }
        Ok(())
    }
}

/// Makes a turn of mail.
pub(super) fn decode<A: Handlers>(
    shared: &Arc<RuntimeInner>,
    mail: InboundMessage,
) -> Result<AnyTurn<A>, (Option<Box<ReplyTo>>, CallError)> {
    let InboundMessage { message, reply } = mail;
    let reply = match reply {
        Some(slot) => Some(Box::new(ReplyTo::slot(slot))),
        None if message.header.one_way => None,
        None => Some(Box::new(ReplyTo::host(shared.clone(), message.header.call))),
    };
    A::decode(message, reply).map_err(|undecoded| (undecoded.reply, CallError::Rejected(undecoded.why)))
}

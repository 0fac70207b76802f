//! The beginning and the end of activations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use elastin_actor::{CellHandle, Handlers, Hook, Instance, Persist, ReplyTo, decode_state};
use elastin_types::{ActivationEpoch, CallError, NotDelivered, Unknown};

use super::enqueue::decode;
use super::{ActorCell, INACTIVE, MAIL, ORPHAN, drop_contained};
use crate::cell::flags::Mark;
use crate::cell::hook_turn::HookTurn;
use crate::cell::mailbox::{AnyTurn, Mailbox};
use crate::cell::state::{CellGuard, ColdState, Ending, Freeze, Suspended};
use crate::{ActivateError, FreezeError, InboundMessage, StateImage};

impl<A: Handlers> ActorCell<A> {
    /// Activates the actor, with mail that is older than any in the mailbox.
    pub(super) fn activate_from(
        &self,
        epoch: ActivationEpoch,
        image: Option<StateImage>,
        mail: Vec<InboundMessage>,
    ) -> Result<(), (ActivateError, Vec<InboundMessage>)> {
        // Before the lock, because decoding takes time and may run any code.
        let moved = image.as_ref().is_some_and(|image| image.moved);
        let state = match image.map_or_else(|| Ok(A::default()), |image| decode_state::<A>(&image.state)) {
            Ok(state) => state,
            Err(error) => return Err((error.into(), mail)),
        };
        let mut mailbox = self.lock();
        if let Some(active) = mailbox.epoch() {
            drop(mailbox);
            drop_contained(state);
            return Err((ActivateError::AlreadyActive(active), mail));
        }
        let cell = self.arc();
        let mut instance = Instance::new(state, cell as Arc<dyn CellHandle>);
        // What came with a move is in memory only, where it is saved at the end.
        instance.changed = moved && matches!(A::PERSIST, Persist::AtPassivation);
        mailbox.open(epoch, self.shared.clock.now());
        mailbox.set(Mark::Woken, false);
        mailbox.set(Mark::Rerouting, false);
        self.shared.activations.fetch_add(1, Ordering::Relaxed);
        let refused = self.put_in_front(&mut mailbox, mail, moved);
        let attention = if mailbox.queued() > 0 { MAIL } else { 0 };
        if mailbox.is(Mark::Orphan) {
            self.idle.set_attention(attention | ORPHAN);
            mailbox.rest().waiting = Some(instance);
            drop(mailbox);
        } else {
            self.idle.set_attention(attention);
            self.settle(mailbox, instance);
        }
        for (reply, error) in refused {
            reply.complete(Err(error));
        }
        Ok(())
    }

    /// Puts mail and the hook of a new activation before what is in the queue; gives back what can't be run.
    fn put_in_front(
        &self,
        mailbox: &mut CellGuard<'_, A>,
        mail: Vec<InboundMessage>,
        moved: bool,
    ) -> Vec<(Box<ReplyTo>, CallError)> {
        let hook = if moved { Hook::AfterMove } else { Hook::Activate };
        let has_hook = A::hooks().contains(&hook);
        let mut refused = Vec::new();
        if mail.is_empty() && !has_hook {
            return refused;
        }
        let queue = &mut mailbox.rest().queue;
        for mail in mail.into_iter().rev() {
            match decode(&self.shared, mail) {
                Ok(turn) => queue.push_front(turn),
                Err((Some(reply), error)) => refused.push((reply, error)),
                Err((None, error)) => tracing::warn!(actor = ?self.actor(), %error, "a message can't be run"),
            }
        }
        if has_hook {
            queue.push_front(self.hook_turn(hook));
        }
        refused
    }

    pub(super) fn hook_turn(&self, hook: Hook) -> AnyTurn<A> {
        HookTurn::boxed(hook, &self.actor())
    }

    /// Ends an activation by itself at a turn boundary, its hook first.
    pub(super) fn end(&self, mut mailbox: CellGuard<'_, A>, instance: Box<Instance<A>>) {
        let rest = mailbox.rest();
        if rest.ending != Ending::Hooked && A::hooks().contains(&Hook::Deactivate) {
            rest.ending = Ending::Hooked;
            rest.queue.push_front(self.hook_turn(Hook::Deactivate));
            return self.settle(mailbox, instance);
        }
        if matches!(A::PERSIST, Persist::AtPassivation) && instance.changed {
            // Comes here again when it is saved.
            return self.save(mailbox, instance, Vec::new());
        }
        let epoch = self.close(&mut mailbox);
        let rest = mailbox.take_rest();
        drop(mailbox);
        drop_contained(instance);
        self.clean_up(rest);
        self.tell_passivated(epoch);
    }

    /// The state is gone: the actor starts again from what was saved. If it may do so here, its mail goes along; otherwise the
    /// mail is refused. With an error it does not start again, and its mail gets that error.
    pub(super) fn lose(&self, error: Option<CallError>) {
        let mut mailbox = self.lock();
        if mailbox.is(Mark::Orphan) {
            // The activation was discarded while the turn ran, so nothing of it is left to lose.
            if let Some(next) = self.orphan_is_gone(&mut mailbox) {
                self.settle(mailbox, next);
            }
            return;
        }
        if let Some(error) = error {
            return self.give_up(mailbox, error);
        }
        let epoch = self.close(&mut mailbox);
        mailbox.set(Mark::Rerouting, true);
        let queue = mailbox
            .rest_if_any()
            .map(|rest| std::mem::replace(&mut rest.queue, Mailbox::new()));
        let rest = mailbox.take_rest();
        if let Some(queue) = queue {
            mailbox.rest().queue = queue;
        }
        drop(mailbox);
        self.clean_up(rest);
        self.tell_passivated(epoch);
        self.reroute();
    }

    /// Finds out whether a lost activation starts again here, with its mail. InboundMessage that comes meanwhile queues behind it.
    fn reroute(&self) {
        let grant = if self.shared.is_stopped() {
            None
        } else {
            self.shared.outside.may_activate_here(&self.actor())
        };
        if let Some(grant) = grant {
            match self.activate_from(grant.epoch, grant.image, Vec::new()) {
                Ok(()) | Err((ActivateError::AlreadyActive(_), _)) => return,
                Err((error, _)) => {
                    tracing::error!(actor = ?self.actor(), %error, "an actor can't be activated");
                    let error = CallError::NotDelivered(NotDelivered::StateUnavailable);
                    return self.give_up(self.lock(), error);
                }
            }
        }
        let mut mailbox = self.lock();
        if mailbox.epoch().is_some() {
            return;
        }
        // From here on mail goes to where the actor is: also that of a sender who is about to hear of the refusal.
        mailbox.set(Mark::Rerouting, false);
        let rest = mailbox.take_rest();
        drop(mailbox);
        // Sent again it could come after what its senders send from now on, so it is refused.
        for mut turn in self.clean_up(rest) {
            let error = CallError::NotDelivered(NotDelivered::NotHere);
            self.shared.when_unfenced(move || turn.as_mut().fail(error));
        }
    }

    /// Ends the activation without another try: everything in its mailbox gets the error.
    fn give_up(&self, mut mailbox: CellGuard<'_, A>, error: CallError) {
        let epoch = self.close(&mut mailbox);
        mailbox.set(Mark::Rerouting, false);
        let rest = mailbox.take_rest();
        drop(mailbox);
        let queue = self.clean_up(rest);
        for mut turn in queue {
            let error = error.clone();
            self.shared.when_unfenced(move || turn.as_mut().fail(error));
        }
        self.tell_passivated(epoch);
    }

    /// Drops an activation that has no right to be any longer. Gives the mail that had not begun.
    pub(super) fn discard_activation(&self, epoch: ActivationEpoch) -> Vec<InboundMessage> {
        let mut mailbox = self.lock();
        if mailbox.epoch() != Some(epoch) {
            return Vec::new();
        }
        self.close(&mut mailbox);
        let mut instance = self.take_at_rest(&mut mailbox);
        let mut unfinished = Vec::new();
        if let Some(rest) = mailbox.rest_if_any() {
            if let Freeze::Frozen(_) = rest.freeze
                && let Freeze::Frozen(frozen) = std::mem::replace(&mut rest.freeze, Freeze::No)
            {
                instance = Some(frozen);
            }
            if let Some(saving) = rest.saving.take() {
                instance = Some(saving.instance);
                unfinished = saving.turns;
            }
        }
        let suspended = mailbox.rest_if_any().and_then(|rest| rest.suspended.take());
        let sharing = mailbox.rest_if_any().and_then(|rest| rest.sharing.take());
        let is_polled = sharing.as_ref().is_none_or(|sharing| sharing.polled);
        // None of the places has it: a turn runs right now. Or one of an activation before this one does still.
        if instance.is_none() && suspended.is_none() && is_polled {
            mailbox.set(Mark::Orphan, true);
        }
        if mailbox.is(Mark::Orphan) {
            self.raise(ORPHAN);
        }
        let rest = mailbox.take_rest();
        drop(mailbox);
        drop_contained(instance);
        if let Some(Suspended { turn, .. }) = suspended {
            unfinished.push(turn);
        }
        let mut joining = VecDeque::new();
        if let Some(sharing) = sharing {
            let shared = sharing.shared.clone();
            let remains = sharing.into_remains();
            unfinished.extend(remains.waiting.into_iter().chain(remains.unsaved));
            joining = remains.joining;
            drop_contained(shared);
        }
        // The last one of them has the state of an actor that was shared.
        unfinished.into_iter().for_each(|turn| self.tell_lost(turn));
        let queue = self.clean_up(rest);
        self.to_mail(joining.into_iter().chain(queue))
    }

    /// A turn of a discarded activation waits for something: it will not go on.
    pub(super) fn bury_suspended(&self, mut mailbox: CellGuard<'_, A>, suspended: Suspended<A>) {
        match self.orphan_is_gone(&mut mailbox) {
            Some(next) => self.settle(mailbox, next),
            None => drop(mailbox),
        }
        self.tell_lost(suspended.turn);
    }

    /// Ends everything, because the runtime ends.
    pub(super) fn tear_down_activation(&self) {
        let epoch = self.lock().epoch();
        if let Some(epoch) = epoch {
            for mail in self.discard_activation(epoch) {
                if let Some(reply) = mail.reply {
                    reply.complete(Err(CallError::NotDelivered(NotDelivered::ShuttingDown)));
                }
            }
        }
    }

    /// Makes messages of turns that have not begun.
    pub(super) fn to_mail(&self, queue: impl IntoIterator<Item = AnyTurn<A>>) -> Vec<InboundMessage> {
        let encoded = queue
            .into_iter()
            .filter_map(|turn| turn.encode(&self.actor(), &*self.shared));
        encoded
            .map(|(message, reply)| InboundMessage {
                message: Arc::new(message),
                reply,
            })
            .collect()
    }

    /// Marks the cell as without an activation; gives the epoch of the one that it had.
    pub(super) fn close(&self, mailbox: &mut CellGuard<'_, A>) -> Option<ActivationEpoch> {
        self.idle.set_attention(INACTIVE);
        mailbox.set(Mark::Suspended, false);
        mailbox.set(Mark::Woken, false);
        self.profile.activation_ended();
        let epoch = mailbox.close();
        if epoch.is_some() {
            self.shared.activations.fetch_sub(1, Ordering::Relaxed);
        }
        epoch
    }

    /// Ends what an activation had going on; gives its mail.
    pub(super) fn clean_up(&self, rest: Option<Box<ColdState<A>>>) -> Mailbox<A> {
        let Some(rest) = rest else { return Mailbox::new() };
        let rest = *rest;
        for timer in rest.timers.into_values() {
            self.shared.timers.cancel(timer.wake);
        }
        for waker in rest.room {
            waker.wake();
        }
        if let Freeze::Asked { done, timer, .. } = rest.freeze {
            self.shared.timers.cancel(timer);
            done(Err(FreezeError::NotActive));
        }
        rest.queue
    }

    fn tell_passivated(&self, epoch: Option<ActivationEpoch>) {
        if let Some(epoch) = epoch {
            self.shared.outside.passivated(&self.actor(), epoch);
        }
    }

    pub(super) fn tell_lost(&self, mut turn: AnyTurn<A>) {
        turn.as_mut().fail(CallError::Unknown(Unknown::NodeLost));
        drop_contained(turn);
    }
}

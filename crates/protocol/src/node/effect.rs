//! Effects: what a part of a node leaves to the node, because other parts take part in it.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, Overloaded};

use super::Node;
use super::hosting::Held;
use super::measures::{Full, NoRoom};
use super::routing::{PathChange, Place};
use crate::bug::Bug;

/// Something to be done by the node after a part has handled an event.
#[derive(Debug)]
pub(super) enum Effect {
    /// Messages held for an actor that does not run here after all are routed elsewhere: to this later activation, if
    /// one is known.
    SendElsewhere(VecDeque<Held>, Option<(NodeId, ActivationEpoch)>),
    /// The path of local callers' messages to an actor is to lead to this place.
    LeavePath(ActorId, Place),
    /// The directory has granted an actor anew that was moving here.
    DropMoveIn(ActorId),
}

impl Node {
    pub(super) fn apply(&mut self, effect: Option<Effect>) {
        match effect {
            None => {}
            Some(Effect::SendElsewhere(held, place)) => self.send_elsewhere(held, place),
            Some(Effect::LeavePath(actor, next)) => self.leave_path(&actor, next),
            Some(Effect::DropMoveIn(actor)) => {
                let effect = self.moves_in.drop_move(&mut self.hosting, &actor);
                self.apply(Some(effect));
            }
        }
    }

    /// Has the messages of local callers to an actor take another path once the present one is clear.
    pub(super) fn leave_path(&mut self, actor: &ActorId, next: Place) {
        let change = self.routing.leave(&mut self.env, actor, next);
        self.apply_path(change);
    }

    /// Sends the messages that waited for a path, and re-checks activations and moves that wait for it to be clear. Calls
    /// that are no longer pending are dropped.
    pub(super) fn apply_path(&mut self, change: Option<PathChange>) {
        let Some(PathChange { actor, messages }) = change else {
            return;
        };
        for message in messages {
            if message.header.one_way || self.calls.is_pending(message.header.call) {
                self.send_own(message);
            }
        }
        let effect = self
            .moves_in
            .accept_if_clear(&mut self.env, &mut self.hosting, &self.routing, &actor);
        self.apply(effect);
        self.open_if_clear(&actor);
    }

    /// Opens an activation unless messages that local callers sent to it earlier are still in flight.
    pub(super) fn open_if_clear(&mut self, actor: &ActorId) {
        let effect = self.hosting.open_if_clear(&mut self.env, &self.routing, actor);
        self.apply(effect);
    }

    /// Sends a message of a local caller. It goes to a local activation unless earlier messages are still on another
    /// path.
    pub(super) fn send_own(&mut self, message: Arc<Message>) {
        let sent = match self.hosting.takes_own(&self.routing, &message.target) {
            true => self.hosting.accept_own(&mut self.env, &mut self.calls, message),
            false => self.routing.send(&mut self.env, &mut self.calls, message),
        };
        self.reject_if_full(sent);
    }

    /// Re-routes messages held for an actor that does not run here after all, in order.
    pub(super) fn send_elsewhere(&mut self, held: VecDeque<Held>, place: Option<(NodeId, ActivationEpoch)>) {
        if self.env.planted.is(Bug::ForgetHeld) {
            return;
        }
        for Held { message, passed } in held {
            if message.header.call.origin == self.env.me && !passed {
                self.send_own(message);
            } else {
                self.env.return_to_origin(message, place);
            }
        }
    }

    /// Rejects a message and notifies its origin.
    pub(super) fn reject(&mut self, message: &Message, error: CallError) {
        self.calls.reject(&mut self.env, message, error);
        let call = message.header.call;
        if call.origin == self.env.me {
            let change = self.routing.message_gone(&mut self.env, &message.target, call);
            self.apply_path(change);
        }
    }

    /// Rejects a message because a bound is reached.
    pub(super) fn reject_if_full(&mut self, result: Result<(), NoRoom>) {
        let Err(NoRoom(full, message)) = result else {
            return;
        };
        let rejections = &mut self.rejections;
        let (count, overloaded) = match full {
            Full::Actor => (&mut rejections.by_actor, Overloaded::Actor),
            Full::Link => (&mut rejections.by_link, Overloaded::Node),
            Full::Directory => (&mut rejections.by_directory, Overloaded::Node),
        };
        *count += 1;
        self.reject(&message, CallError::Overloaded(overloaded));
    }
}

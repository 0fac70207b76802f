//! The runtime's interface to the rest of the cluster: calls to remote actors, replies, saves and reminders.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::{ReminderDone, ReminderRequest, ReplySender};
use elastin_protocol::Event;
use elastin_protocol::store::{StateError, StateRequest};
use elastin_runtime::{Grant, Remote, SaveDone, SaveError};
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, Outcome, Rejected};

use super::{DriverInner, MESSAGE_BYTES_MAX, reminder_delivery};
use crate::serial_executor::Input;
use crate::transport;

/// Rejects payloads that are too large for a frame. The transport would reject them too late to complete the call.
fn check_size(bytes: usize) -> Result<(), CallError> {
    match bytes > MESSAGE_BYTES_MAX {
        true => Err(CallError::Rejected(Rejected::TooLarge {
            bytes,
            max: MESSAGE_BYTES_MAX,
        })),
        false => Ok(()),
    }
}

/// The bytes of a message whose number is up to the application: arguments and context values.
fn variable_bytes(message: &Message) -> usize {
    let values = message.header.context.iter().flat_map(|values| values.iter());
    let values: usize = values.map(|(name, value)| name.len() + value.len()).sum();
    message.body.len() + values
}

impl Remote for DriverInner {
    fn may_activate_here(&self, _: &ActorId) -> Option<Grant> {
        // The directory decides.
        None
    }

    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>) {
        if let Err(too_large) = check_size(variable_bytes(&message)) {
            if let Some(reply) = reply {
                reply.complete(Err(too_large));
            }
            return;
        }
        let input = Input::of_call(Event::Send { message }, reply);
        match self.hosts {
            true => self.serial_executor.handle_now(input, self),
            false => self.fast_path.send(&self.serial_executor, input, self),
        }
    }

    fn keeps_deadlines(&self) -> bool {
        // The protocol enforces the deadline of every call that it handles.
        true
    }

    fn give_up(&self, call: CallId) {
        self.handle(Event::GiveUp { call });
    }

    fn reply(&self, call: CallId, outcome: Outcome) {
        let outcome = outcome.and_then(|reply| check_size(reply.len()).map(|()| reply));
        self.replied(Event::Replied { call, outcome });
    }

    fn save(&self, actor: &ActorId, epoch: ActivationEpoch, state: Bytes, done: SaveDone) {
        if self.runtime().now().0 >= self.may_act_until.load(Ordering::Relaxed) {
            return done(Err(SaveError::Unavailable("the node's lease may have expired".into())));
        }
        let request = StateRequest::Save {
            actor: actor.clone(),
            epoch,
            state,
        };
        self.state.submit(
            request,
            Box::new(move |saved| done(saved.map(drop).map_err(save_error))),
        );
    }

    fn busy_poll_time(&self) -> Duration {
        transport::busy_poll_time()
    }

    fn last_known_node(&self, actor: &ActorId) -> Option<NodeId> {
        self.serial_executor.read(self, |node| node.last_known(actor))
    }

    fn remind(&self, actor: &ActorId, request: ReminderRequest, done: ReminderDone) {
        tokio::spawn(reminder_delivery::remind(
            self.this.clone(),
            actor.clone(),
            request,
            done,
        ));
    }

    fn passivated(&self, actor: &ActorId, epoch: ActivationEpoch) {
        self.handle(Event::Passivated {
            actor: actor.clone(),
            epoch,
        });
    }
}

fn save_error(error: StateError) -> SaveError {
    match error {
        StateError::Fenced { .. } => SaveError::Superseded,
        error => SaveError::Unavailable(error.to_string()),
    }
}

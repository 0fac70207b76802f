//! Reminders of a node: sets those of its actors, and calls the actors whose reminders are due.

use std::sync::{Arc, Weak};
use std::time::Duration;

use elastin_actor::{ReminderDone, ReminderError, ReminderRequest, ReplySender};
use elastin_clock::Clock;
use elastin_protocol::Slot;
use elastin_protocol::reminders::DueRow;
use elastin_protocol::store::StateError;
use elastin_runtime::Remote;
use elastin_types::{ActorId, CallError, Caller, Header, Message, Method, Outcome, Reminder};
use tokio::sync::oneshot;

use super::DriverInner;
use crate::frame::Class;
use crate::reminders::{self, ReminderHost};

/// Sets or cancels a reminder of an actor of this node.
pub(super) async fn remind(this: Weak<DriverInner>, actor: ActorId, request: ReminderRequest, done: ReminderDone) {
    let Some((state, now_ms)) = this.upgrade().map(|this| (this.state.clone(), this.clock().wall_ms())) else {
        return;
    };
    let result = match request {
        ReminderRequest::Set { name, after, every } => {
            let due_ms = now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            let set = reminders::set(&*state, &actor, &name, due_ms, every).await;
            set.inspect(|_| {
                if let Some(this) = this.upgrade() {
                    this.notify_owner(&actor, due_ms);
                }
            })
            .map(Some)
        }
        ReminderRequest::Forget { name } => reminders::forget(&*state, &actor, &name).await,
    };
    done(result.map_err(|error: StateError| ReminderError::Unavailable(error.to_string())));
}

impl DriverInner {
    /// Notifies the owner of the actor's slot of a new reminder. If the note is lost, the owner's sweep finds the row.
    fn notify_owner(&self, actor: &ActorId, due_ms: u64) {
        let slot = Slot::of(actor);
        let Some(view) = self.serial_executor.read(self, |node| node.view().cloned()) else {
            return;
        };
        let owner = view.slots.owner(slot).node;
        if owner == self.me {
            return self.reminders.note((slot, due_ms));
        }
        let payload = postcard::to_stdvec(&(slot, due_ms)).expect("a note is plain data");
        if let Err(error) = self.transport().send(owner, Class::Reminder, &payload) {
            tracing::debug!(%owner, %error, "dropped the note of a reminder");
        }
    }
}

impl ReminderHost for DriverInner {
    fn clock(&self) -> &Clock {
        self.runtime().clock()
    }

    fn message(&self, row: &DueRow, answer_time_max: Duration) -> Message {
        let host = self.runtime().host();
        let call = host.next_call();
        let header = Header {
            tenant: row.actor.tenant,
            deadline: Some(host.now() + answer_time_max),
            source_time_ms: row.due_ms,
            // The actor itself has set the reminder.
            ..Header::of_call(call, Caller::Actor(row.actor.clone()))
        };
        let arguments = (row.reminder(),);
        Message {
            target: row.actor.clone(),
            header,
            method: Method::of(Reminder::FUNCTION),
            body: postcard::to_stdvec(&arguments)
                .expect("a reminder is plain data")
                .into(),
        }
    }

    fn call(&self, message: Message) -> impl Future<Output = Outcome> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        let reply = ReplySender::new(move |outcome| drop(sender.send(outcome)));
        self.send(Arc::new(message), Some(reply));
        async { receiver.await.unwrap_or(Err(CallError::Cancelled)) }
    }
}

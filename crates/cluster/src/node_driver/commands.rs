//! Carries out the node's commands on the runtime, the store and the network.

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest};
use elastin_protocol::{Command, Event, Frame, StateSource};
use elastin_runtime::{FreezeError, InboundMessage, StateImage};
use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered, Time};

use super::Inner;
use crate::pending_calls::PendingCalls;
use crate::serial_executor::{CommandContext, CommandExecutor};
use crate::transport::Outbox;

/// What is wanted at once waits so long all the same: most likely the next event sees to it, and nobody need be woken. Shorter, and
/// the thread that rings would be in the way of those who have much to send.
const WAKE_AFTER_MIN: Duration = Duration::from_millis(1);

/// An activation that waits to be opened.
pub(super) struct Closed {
    epoch: ActivationEpoch,
    image: Option<StateImage>,
    mail: Vec<InboundMessage>,
}

impl CommandExecutor for Inner {
    fn now(&self) -> Time {
        self.runtime().now()
    }

    fn execute(&self, command: Command, context: &mut CommandContext) {
        match command {
            Command::Transmit { to, frame } => self.transmit(to, &frame, &mut context.outbox),
            Command::Complete { call, outcome } => context.callers.end(call, outcome),
            Command::Deliver { epoch, message } => context.next.extend(self.deliver(epoch, message)),
            Command::Activate { actor, epoch, source } => self.activate(actor, epoch, source),
            Command::Open { actor, epoch } => context.next.extend(self.open(actor, epoch)),
            Command::Freeze { actor, epoch, deadline } => self.freeze(actor, epoch, deadline),
            Command::Resume { actor, epoch } => drop(self.runtime().resume(&actor, epoch)),
            Command::Release { actor, epoch } => {
                context.next.push_back(self.release(actor, epoch, &mut context.callers))
            }
            Command::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                self.above.need_placement(actor, caller, caller_node);
            }
            Command::MoveEnded { id, result } => self.above.move_ended(id, result),
            Command::Refused { from } => {
                tracing::warn!(%from, "a peer says what only servers say, and is none: it is not listened to");
            }
        }
    }

    fn stopped(&self) {
        // Where it was is said by the hook that all panics go through.
        tracing::error!("a panic in the cluster's protocol, which is a bug: this node does nothing any more");
        self.failed.send_replace(true);
        self.stop_acting();
        self.transport().close();
    }

    fn wake_at(&self, at: Option<Time>) {
        let Some(at) = at.filter(|at| self.timer.set(*at)) else {
            return;
        };
        let timer_waker = self.timer_waker.get().expect("a peer is attached before it takes part");
        let at = at.max(self.now() + WAKE_AFTER_MIN);
        self.runtime().host().wake_at(at, timer_waker.clone());
    }
}

impl Inner {
    fn activate(&self, actor: ActorId, epoch: ActivationEpoch, source: StateSource) {
        let staged = match source {
            StateSource::Fresh => None,
            StateSource::Staged(state) => Some(StateImage { state, moved: true }),
        };
        if !self.saved_types.contains(&actor.kind) {
            return self.activated(actor, epoch, Ok(staged));
        }
        let this = self.this.clone();
        let claim = StateRequest::Claim {
            actor: actor.clone(),
            epoch,
            claimer: self.me,
        };
        self.state.submit(
            claim,
            Box::new(move |claimed| {
                let Some(this) = this.upgrade() else { return };
                let image = match claimed {
                    // What was staged is at least as new as what is stored: the source saved before it replied.
                    Ok(StateReply::Claimed { state }) => {
                        Ok(staged.or(state.map(|state| StateImage { state, moved: false })))
                    }
                    Ok(other) => unreachable!("a claim is answered by Claimed, not {other:?}"),
                    Err(error) => Err(error),
                };
                this.activated(actor, epoch, image);
            }),
        );
    }

    fn activated(&self, actor: ActorId, epoch: ActivationEpoch, image: Result<Option<StateImage>, StateError>) {
        let result = match image {
            Ok(image) => {
                self.closed.lock().insert(
                    actor.clone(),
                    Closed {
                        epoch,
                        image,
                        mail: Vec::new(),
                    },
                );
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%epoch, %error, "an actor could not be claimed");
                Err(CallError::NotDelivered(NotDelivered::StateUnavailable))
            }
        };
        self.handle(Event::Activated { actor, epoch, result });
    }

    fn deliver(&self, epoch: ActivationEpoch, message: Arc<Message>) -> Option<Event> {
        if let Some(closed) = self
            .closed
            .lock()
            .get_mut(&message.target)
            .filter(|closed| closed.epoch == epoch)
        {
            closed.mail.push(message.into());
            return None;
        }
        let undeliverable = self.runtime().deliver(message, epoch).err()?;
        Some(Event::Bounced {
            epoch,
            message: undeliverable.0.message,
        })
    }

    fn open(&self, actor: ActorId, epoch: ActivationEpoch) -> Vec<Event> {
        let closed = {
            let mut closed = self.closed.lock();
            match closed.get(&actor) {
                Some(waiting) if waiting.epoch == epoch => closed.remove(&actor),
                _ => None,
            }
        };
        let Some(closed) = closed else {
            self.runtime().resume(&actor, epoch);
            return Vec::new();
        };
        match self.runtime().activate(&actor, epoch, closed.image, closed.mail) {
            Ok(()) => Vec::new(),
            Err((error, mail)) => {
                tracing::error!(%epoch, %error, "an actor could not be activated");
                let mut events = self.fail(mail, &CallError::NotDelivered(NotDelivered::StateUnavailable));
                events.push(Event::Passivated { actor, epoch });
                events
            }
        }
    }

    /// Ends the calls in some mail with an error: those of this node's own callers at once, the others as events.
    fn fail(&self, mail: Vec<InboundMessage>, error: &CallError) -> Vec<Event> {
        mail.into_iter()
            .filter_map(|InboundMessage { message, reply }| match reply {
                Some(reply) => {
                    reply.complete(Err(error.clone()));
                    None
                }
                None => Some(Event::Replied {
                    call: message.header.call,
                    outcome: Err(error.clone()),
                }),
            })
            .collect()
    }

    fn freeze(&self, actor: ActorId, epoch: ActivationEpoch, deadline: Time) {
        let this = self.this.clone();
        let whose = actor.clone();
        let done = move |frozen: Result<StateImage, FreezeError>| {
            let Some(this) = this.upgrade() else { return };
            let image = match frozen {
                Ok(image) => Some(image.state),
                Err(error) => {
                    tracing::debug!(%epoch, %error, "an actor was not frozen");
                    None
                }
            };
            this.handle(Event::Frozen { actor, epoch, image });
        };
        self.runtime().freeze(&whose, epoch, deadline, Box::new(done));
    }

    fn release(&self, actor: ActorId, epoch: ActivationEpoch, callers: &mut PendingCalls) -> Event {
        // Nothing to release if the activation ended by itself: the event that says so is on its way.
        let released = self.runtime().release(&actor, epoch).unwrap_or_default();
        let queue = released
            .into_iter()
            .map(|InboundMessage { message, reply }| {
                if let Some(reply) = reply {
                    callers.expect(message.header.call, reply);
                }
                message
            })
            .collect();
        Event::Released { actor, epoch, queue }
    }

    fn transmit(&self, to: NodeId, frame: &Frame, outbox: &mut Outbox) {
        if let Err(error) = outbox.put(self.transport(), to, frame) {
            // It is transmitted again when the link is up or after a while.
            tracing::debug!(%to, %error, "a frame was dropped");
        }
    }
}

//! Executes the node's commands on the runtime, the store and the transport.

use std::sync::Arc;

use elastin_protocol::store::{StateError, StateReply, StateRequest};
use elastin_protocol::{Command, Event, Frame, StateSource};
use elastin_runtime::{FreezeError, InboundMessage, StateImage};
use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered, Time};

use super::DriverInner;
use crate::outbox::Outbox;
use crate::pending_calls::PendingCalls;
use crate::serial_executor::{CommandContext, CommandExecutor};

/// An activation that is claimed and not open yet.
pub(super) struct PendingActivation {
    epoch: ActivationEpoch,
    image: Option<StateImage>,
    messages: Vec<InboundMessage>,
}

impl CommandExecutor for DriverInner {
    fn now(&self) -> Time {
        self.runtime().now()
    }

    fn execute(&self, command: Command, context: &mut CommandContext) {
        match command {
            Command::Transmit { to, frame } => self.transmit(to, &frame, &mut context.outbox),
            Command::Complete { call, outcome } => context.pending_calls.complete(call, outcome),
            Command::Deliver { epoch, message } => context.next.extend(self.deliver(epoch, message)),
            Command::Activate { actor, epoch, source } => self.activate(actor, epoch, source),
            Command::Open { actor, epoch } => context.next.extend(self.open(actor, epoch)),
            Command::Freeze { actor, epoch, deadline } => self.freeze(actor, epoch, deadline),
            Command::Resume { actor, epoch } => drop(self.runtime().resume(&actor, epoch)),
            Command::Release { actor, epoch } => {
                context
                    .next
                    .push_back(self.release(actor, epoch, &mut context.pending_calls))
            }
            Command::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                self.callbacks.need_placement(actor, caller, caller_node);
            }
            Command::MoveEnded { id, result } => self.callbacks.move_ended(id, result),
            Command::Refused { from } => {
                tracing::warn!(%from, "ignoring a server-only frame from a client");
            }
        }
    }

    fn stopped(&self) {
        // The panic hook has logged the location.
        tracing::error!("stopping this node: the cluster protocol panicked, which is a bug");
        self.failed.send_replace(true);
        self.stop_acting();
        self.transport().close();
    }

    fn wake_at(&self, at: Option<Time>) {
        let Some(at) = at.filter(|at| self.timer.set(*at)) else {
            return;
        };
        let timer_waker = self
            .timer_waker
            .get()
            .expect("the driver is attached before it handles events");
        self.runtime().host().wake_at(at, timer_waker.clone());
    }
}

impl DriverInner {
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
                    // The staged state is at least as new as the stored one: the source saved before it replied.
                    Ok(StateReply::Claimed { state }) => {
                        Ok(staged.or(state.map(|state| StateImage { state, moved: false })))
                    }
                    Ok(other) => unreachable!("expected Claimed as the reply to a claim, got {other:?}"),
                    Err(error) => Err(error),
                };
                this.activated(actor, epoch, image);
            }),
        );
    }

    fn activated(&self, actor: ActorId, epoch: ActivationEpoch, image: Result<Option<StateImage>, StateError>) {
        let result = match image {
            Ok(image) => {
                self.pending_activations.lock().insert(
                    actor.clone(),
                    PendingActivation {
                        epoch,
                        image,
                        messages: Vec::new(),
                    },
                );
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%epoch, %error, "could not claim an actor in the state store");
                Err(CallError::NotDelivered(NotDelivered::StateUnavailable))
            }
        };
        self.handle(Event::Activated { actor, epoch, result });
    }

    fn deliver(&self, epoch: ActivationEpoch, message: Arc<Message>) -> Option<Event> {
        if let Some(activation) = self
            .pending_activations
            .lock()
            .get_mut(&message.target)
            .filter(|activation| activation.epoch == epoch)
        {
            activation.messages.push(message.into());
            return None;
        }
        let undeliverable = self.runtime().deliver(message, epoch).err()?;
        Some(Event::Bounced {
            epoch,
            message: undeliverable.0.message,
        })
    }

    fn open(&self, actor: ActorId, epoch: ActivationEpoch) -> Vec<Event> {
        let activation = {
            let mut pending = self.pending_activations.lock();
            match pending.get(&actor) {
                Some(activation) if activation.epoch == epoch => pending.remove(&actor),
                _ => None,
            }
        };
        let Some(activation) = activation else {
            self.runtime().resume(&actor, epoch);
            return Vec::new();
        };
        let PendingActivation { image, messages, .. } = activation;
        match self.runtime().activate(&actor, epoch, image, messages) {
            Ok(()) => Vec::new(),
            Err((error, messages)) => {
                tracing::error!(%epoch, %error, "could not activate an actor");
                let mut events = self.fail(messages, &CallError::NotDelivered(NotDelivered::StateUnavailable));
                events.push(Event::Passivated { actor, epoch });
                events
            }
        }
    }

    /// Fails the calls of some messages: those of local callers at once, the others with an event each.
    fn fail(&self, messages: Vec<InboundMessage>, error: &CallError) -> Vec<Event> {
        messages
            .into_iter()
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
        let target = actor.clone();
        let done = move |frozen: Result<StateImage, FreezeError>| {
            let Some(this) = this.upgrade() else { return };
            let image = match frozen {
                Ok(image) => Some(image.state),
                Err(error) => {
                    tracing::debug!(%epoch, %error, "could not freeze an actor");
                    None
                }
            };
            this.handle(Event::Frozen { actor, epoch, image });
        };
        self.runtime().freeze(&target, epoch, deadline, Box::new(done));
    }

    fn release(&self, actor: ActorId, epoch: ActivationEpoch, pending_calls: &mut PendingCalls) -> Event {
        // An activation that passivated by itself has no messages: its `Passivated` event is already on its way.
        let released = self.runtime().release(&actor, epoch).unwrap_or_default();
        let queue = released
            .into_iter()
            .map(|InboundMessage { message, reply }| {
                if let Some(reply) = reply {
                    pending_calls.insert(message.header.call, reply);
                }
                message
            })
            .collect();
        Event::Released { actor, epoch, queue }
    }

    fn transmit(&self, to: NodeId, frame: &Frame, outbox: &mut Outbox) {
        if let Err(error) = outbox.put(self.transport(), to, frame) {
            // The protocol retransmits it when the link is up, or after a timeout.
            tracing::debug!(%to, %error, "dropped a frame");
        }
    }
}

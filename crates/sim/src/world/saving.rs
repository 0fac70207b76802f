//! Activations and the state store: claiming epochs, loading and saving.

use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::Event;
use elastin_protocol::store::{StateError, StateReply, StateRequest, StoreFailure};
use elastin_types::{ActivationEpoch, ActorId, CallError, NodeId, NotDelivered, Unknown};

use super::runtime::LOAD_MOST;
use super::{World, WorldEvent};
use crate::host::{Envelope, State};

/// The longest delay of a slow store: longer than any lease and the hold after it.
const SLOW_MOST: Duration = Duration::from_millis(1500);

/// A request of a node to the state store, and its reply.
#[derive(Debug)]
pub(super) struct StoreOperation {
    pub(super) node: NodeId,
    actor: ActorId,
    epoch: ActivationEpoch,
    request: StateRequest,
    reply: Option<Result<StateReply, StateError>>,
    /// The state that came with a move.
    staged: Option<State>,
}

impl World {
    /// Sends a request to the store.
    pub(super) fn submit_to_store(
        &mut self,
        node: NodeId,
        actor: ActorId,
        epoch: ActivationEpoch,
        request: StateRequest,
        staged: Option<State>,
    ) {
        let after = self.store_delay();
        let operation = StoreOperation {
            node,
            actor,
            epoch,
            request,
            reply: None,
            staged,
        };
        self.at(after, WorldEvent::StoreRequest(Box::new(operation)));
    }

    fn store_delay(&mut self) -> Duration {
        let percent = self.options.faults.slow_saves;
        if !self.calm && percent > 0 && self.random.chance(percent) {
            self.log.count("slow store");
            return self.random.between(LOAD_MOST, SLOW_MOST);
        }
        self.up_to(LOAD_MOST)
    }

    /// Handles a request at the store.
    pub(super) fn store_handles(&mut self, mut operation: StoreOperation) {
        let percent = self.options.faults.failed_saves;
        let fails = !self.calm && percent > 0 && self.random.chance(percent);
        let is_lost = fails && self.random.chance(50);
        let mut reply = match fails && !is_lost {
            true => Err(StateError::Failed(StoreFailure::Io {
                reason: "simulated".into(),
            })),
            false => self.store.handle(self.now, operation.request.clone()),
        };
        if reply.is_ok() && operation.request.is_write() {
            let result = self.checkers.stored.written(&operation.actor, operation.epoch);
            self.checkers.note(result);
        }
        if let Ok(StateReply::Claimed { state } | StateReply::Loaded { state, .. }) = &reply {
            let turns = state.as_ref().map_or(0, |state| State::decode(state).effects);
            let result = self.checkers.stored.loaded(&operation.actor, turns);
            self.checkers.note(result);
        }
        if fails {
            self.log.count("store failed");
        }
        if is_lost {
            reply = Err(StateError::Failed(StoreFailure::Interrupted {
                reason: "simulated".into(),
            }));
        }
        operation.reply = Some(reply);
        let after = self.store_delay();
        self.at(after, WorldEvent::StoreReply(Box::new(operation)));
    }

    /// Handles a reply of the store.
    pub(super) fn store_replied(&mut self, operation: StoreOperation) {
        let StoreOperation {
            node,
            actor,
            epoch,
            request,
            reply,
            staged,
        } = operation;
        let is_save = matches!(request, StateRequest::Save { .. });
        if self.activation(node, &actor, epoch).is_none() {
            return;
        }
        match reply.expect("the store has handled the request") {
            Ok(StateReply::Claimed { state } | StateReply::Loaded { state, .. }) => {
                let saved = state.as_ref().map(State::decode);
                self.init_state(node, &actor, epoch, staged, saved);
                let result = Ok(());
                self.handle(node, Event::Activated { actor, epoch, result });
            }
            Ok(StateReply::Saved) => self.finish_turn(node, &actor, epoch),
            Ok(other) => unreachable!("no request is answered by {other:?}"),
            Err(_) if is_save && self.swallows_failed_save() => self.finish_turn(node, &actor, epoch),
            Err(_) => {
                let activation = self.activation(node, &actor, epoch).expect("it was just there");
                match activation.turn.take() {
                    Some(envelope) => self.not_saved(node, actor, epoch, envelope),
                    None => {
                        self.log.count("claim failed");
                        let process = self.processes.get_mut(&node).expect("it lives");
                        process.host.activations.remove(&actor);
                        let result = Err(CallError::NotDelivered(NotDelivered::StateUnavailable));
                        self.handle(node, Event::Activated { actor, epoch, result });
                    }
                }
            }
        }
    }

    /// A turn's effect could not be saved: the activation ends, its mailbox is rejected, and the outcome is unknown.
    pub(super) fn not_saved(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, envelope: Envelope) {
        self.log.count("effect not saved");
        let process = self.processes.get_mut(&node).expect("it lives");
        let activation = process.host.activations.remove(&actor).expect("it is there");
        self.answer(node, &envelope, Err(CallError::Unknown(Unknown::NotSaved)));
        if self.resends_lost_mail() {
            self.handle(node, Event::Passivated { actor, epoch });
            for envelope in activation.mailbox {
                let message = envelope.message;
                self.handle(node, Event::Bounced { epoch, message });
            }
            return;
        }
        for envelope in activation.mailbox {
            self.answer(
                node,
                &envelope,
                Err(CallError::NotDelivered(NotDelivered::StateUnavailable)),
            );
        }
        self.handle(node, Event::Passivated { actor, epoch });
    }

    /// Saves the effect of a turn, before its reply leaves.
    pub(super) fn save(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch, state: Bytes) {
        let past_lease = self.saves_past_lease();
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        let local = process.clock.local(self.now);
        if local >= process.host.may_act_until && !past_lease {
            let Some(activation) = process.host.get(actor, epoch) else {
                return;
            };
            let envelope = activation.turn.take().expect("its turn has ended and is not finished");
            return self.not_saved(node, actor.clone(), epoch, envelope);
        }
        self.checkers.save_leaves(node, self.now);
        let actor = actor.clone();
        let request = StateRequest::Save {
            actor: actor.clone(),
            epoch,
            state,
        };
        self.submit_to_store(node, actor, epoch, request, None);
    }
}

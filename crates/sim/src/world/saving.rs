//! What activations want of the state store: they claim their epochs, load, and save.

use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::Event;
use elastin_protocol::store::{StateError, StateReply, StateRequest, StoreFailure};
use elastin_types::{ActivationEpoch, ActorId, CallError, NodeId, NotDelivered, Unknown};

use super::runtime::LOAD_MOST;
use super::{Happening, World};
use crate::host::{Mail, State};

/// How long a slow store takes at most: longer than any lease and the hold after it.
const SLOW_MOST: Duration = Duration::from_millis(1500);

/// What a node wants of the state store, and its answer.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) node: NodeId,
    actor: ActorId,
    epoch: ActivationEpoch,
    request: StateRequest,
    answer: Option<Result<StateReply, StateError>>,
    /// The state that came with a move.
    staged: Option<State>,
}

impl World {
    /// Something is wanted of the store.
    pub(super) fn ask_store(
        &mut self,
        node: NodeId,
        actor: ActorId,
        epoch: ActivationEpoch,
        request: StateRequest,
        staged: Option<State>,
    ) {
        let after = self.store_takes();
        let stored = Stored {
            node,
            actor,
            epoch,
            request,
            answer: None,
            staged,
        };
        self.at(after, Happening::Store(Box::new(stored)));
    }

    fn store_takes(&mut self) -> Duration {
        let percent = self.options.faults.slow_saves;
        if !self.calm && percent > 0 && self.random.chance(percent) {
            self.log.count("slow store");
            return self.random.between(LOAD_MOST, SLOW_MOST);
        }
        self.up_to(LOAD_MOST)
    }

    /// A request gets to the store.
    pub(super) fn store_handles(&mut self, mut stored: Stored) {
        let percent = self.options.faults.failed_saves;
        let fails = !self.calm && percent > 0 && self.random.chance(percent);
        let is_lost = fails && self.random.chance(50);
        let mut answer = match fails && !is_lost {
            true => Err(StateError::Failed(StoreFailure::Io {
                reason: "simulated".into(),
            })),
            false => self.store.handle(self.now, stored.request.clone()),
        };
        if answer.is_ok() && stored.request.is_write() {
            let result = self.checkers.stored.written(&stored.actor, stored.epoch);
            self.checkers.note(result);
        }
        if let Ok(StateReply::Claimed { state } | StateReply::Loaded { state, .. }) = &answer {
            let turns = state.as_ref().map_or(0, |state| State::decode(state).effects);
            let result = self.checkers.stored.loaded(&stored.actor, turns);
            self.checkers.note(result);
        }
        if fails {
            self.log.count("store failed");
        }
        if is_lost {
            answer = Err(StateError::Failed(StoreFailure::Interrupted {
                reason: "simulated".into(),
            }));
        }
        stored.answer = Some(answer);
        let after = self.store_takes();
        self.at(after, Happening::Stored(Box::new(stored)));
    }

    /// The store has answered.
    pub(super) fn stored(&mut self, stored: Stored) {
        let Stored {
            node,
            actor,
            epoch,
            request,
            answer,
            staged,
        } = stored;
        let is_save = matches!(request, StateRequest::Save { .. });
        if self.activation(node, &actor, epoch).is_none() {
            return;
        }
        match answer.expect("the store has handled it") {
            Ok(StateReply::Claimed { state } | StateReply::Loaded { state, .. }) => {
                let saved = state.as_ref().map(State::decode);
                self.bear(node, &actor, epoch, staged, saved);
                let result = Ok(());
                self.handle(node, Event::Activated { actor, epoch, result });
            }
            Ok(StateReply::Saved) => self.finish_turn(node, &actor, epoch),
            Ok(other) => unreachable!("nothing is answered by {other:?}"),
            Err(_) if is_save && self.swallows_failed_save() => self.finish_turn(node, &actor, epoch),
            Err(_) => {
                let activation = self.activation(node, &actor, epoch).expect("it was just there");
                match activation.turn.take() {
                    Some(mail) => self.not_saved(node, actor, epoch, mail),
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

    /// A turn's effect could not be saved: the activation ends, what waits in it is refused, and the caller can't know.
    pub(super) fn not_saved(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, mail: Mail) {
        self.log.count("effect not saved");
        let process = self.processes.get_mut(&node).expect("it lives");
        let activation = process.host.activations.remove(&actor).expect("it is there");
        self.answer(node, &mail, Err(CallError::Unknown(Unknown::NotSaved)));
        if self.resends_lost_mail() {
            self.handle(node, Event::Passivated { actor, epoch });
            for mail in activation.mailbox {
                let message = mail.message;
                self.handle(node, Event::Bounced { epoch, message });
            }
            return;
        }
        for mail in activation.mailbox {
            self.answer(
                node,
                &mail,
                Err(CallError::NotDelivered(NotDelivered::StateUnavailable)),
            );
        }
        self.handle(node, Event::Passivated { actor, epoch });
    }

    /// A turn is over, and its effect is to be saved before anybody hears of it.
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
            let mail = activation.turn.take().expect("its turn is over and not finished");
            return self.not_saved(node, actor.clone(), epoch, mail);
        }
        self.checkers.save_leaves(node, self.now);
        let actor = actor.clone();
        let request = StateRequest::Save {
            actor: actor.clone(),
            epoch,
            state,
        };
        self.ask_store(node, actor, epoch, request, None);
    }
}

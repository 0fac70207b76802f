//! The runtime of a simulated node: activations start, run turns, save, freeze and end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::store::StateRequest;
use elastin_protocol::{Event, RequestId, StateSource};
use elastin_types::{ActivationEpoch, ActorId, CallError, Caller, Message, NodeId, Overloaded, Time};

use super::callers::{Outgoing, Payload};
use super::{World, WorldEvent};
use crate::check::Turn;
use crate::host::{Activation, Envelope, SkippedChecks, State, Status};
use crate::show::{show_call, show_caller};

/// The longest time of a turn.
const TURN_MOST: Duration = Duration::from_micros(500);
/// The longest time of a long turn, into which pauses and ends of leases fall.
const LONG_TURN_MOST: Duration = Duration::from_millis(20);
const LONG_TURNS_PERCENT: u64 = 3;
/// The longest time to load an actor's state, and the longest delay of the state store each way.
pub(super) const LOAD_MOST: Duration = Duration::from_millis(3);

impl World {
    pub(super) fn activation(
        &mut self,
        node: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
    ) -> Option<&mut Activation> {
        self.processes.get_mut(&node)?.host.get(actor, epoch)
    }

    fn is_saved(&self, actor: &ActorId) -> bool {
        let is_odd = matches!(actor.key, elastin_types::Key::U64(number) if number % 2 == 1);
        self.options.saves && is_odd
    }

    // ---- Activation

    pub(super) fn activate(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, source: StateSource) {
        self.log.count(match source {
            StateSource::Fresh => "activation",
            StateSource::Staged(_) => "arrival",
        });
        let staged = match source {
            StateSource::Fresh => None,
            StateSource::Staged(image) => Some(State::decode(&image)),
        };
        let process = self.processes.get_mut(&node).expect("it lives");
        process.host.activate(actor.clone(), epoch, staged.unwrap_or_default());
        if self.is_saved(&actor) {
            let request = match self.skips_claim() {
                true => StateRequest::Load { actor: actor.clone() },
                false => StateRequest::Claim {
                    actor: actor.clone(),
                    epoch,
                    claimer: node,
                },
            };
            return self.submit_to_store(node, actor, epoch, request, staged);
        }
        self.init_state(node, &actor, epoch, staged, None);
        let after = self.up_to(LOAD_MOST);
        let result = Ok(());
        let event = Event::Activated { actor, epoch, result };
        self.at(after, WorldEvent::Node(node, Box::new(event)));
    }

    /// Sets the state of an activation: that of the move, else the saved one, else the default.
    pub(super) fn init_state(
        &mut self,
        node: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
        staged: Option<State>,
        saved: Option<State>,
    ) {
        self.incarnations += 1;
        let effects = saved.map_or(0, |saved| saved.effects);
        let mut state = staged.unwrap_or(State {
            incarnation: self.incarnations,
            initial_effects: effects,
            effects,
            sender: self.incarnations,
        });
        let came_from = self.last_host.insert(actor.clone(), node);
        if came_from.is_some_and(|from| !self.is_alive(from)) {
            state.sender = self.incarnations;
        }
        let activation = self.activation(node, actor, epoch).expect("it was activated");
        activation.state = state;
    }

    // ---- Turns

    pub(super) fn deliver(&mut self, node: NodeId, epoch: ActivationEpoch, message: Arc<Message>) {
        let actor = &message.target.clone();
        let mailbox_max = self.mailbox_max();
        let runs_refused = self.runs_refused();
        match self.activation(node, actor, epoch) {
            Some(activation) if activation.mailbox.len() >= mailbox_max => {
                let envelope = Envelope { message, direct: false };
                if runs_refused {
                    activation.mailbox.push_back(envelope.clone());
                }
                self.log.count("mailbox full");
                self.answer_deferred(node, &envelope, Err(CallError::Overloaded(Overloaded::Actor)));
            }
            Some(activation) => {
                activation.mailbox.push_back(Envelope { message, direct: false });
                self.run_turns(node, actor);
            }
            None => {
                self.log.count("bounce");
                let process = self.processes.get_mut(&node).expect("it lives");
                process.urgent.push_back(Event::Bounced { epoch, message });
            }
        }
    }

    /// Starts a turn if possible.
    pub(super) fn run_turns(&mut self, node: NodeId, actor: &ActorId) {
        let skipped = SkippedChecks {
            lease: self.runs_past_lease(),
            overlap: self.overlaps_turns(),
        };
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        let local = process.clock.local(self.now);
        let Some((epoch, envelope, state)) = process.host.start_turn(local, actor, skipped) else {
            return;
        };
        let payload = Payload::of(&envelope.message);
        let header = &envelope.message.header;
        self.last_turn = self.now;
        self.log.note(self.now, Some(actor), || {
            format!(
                "    {node} runs {} of {} for {} (number {})",
                show_call(header.call),
                show_caller(&header.caller),
                actor.key,
                payload.number
            )
        });
        let turn = Turn {
            node,
            actor,
            epoch,
            call: header.call,
            request: RequestId::of(&envelope.message),
            caller: &header.caller,
            sender_incarnation: payload.sender_incarnation,
            number: payload.number,
            state,
        };
        self.checkers.turn_starts(&turn, self.now);
        if self.is_saved(actor) {
            let result = self.checkers.stored.runs(actor, epoch);
            self.checkers.note(result);
        }
        let is_long = self.random.chance(LONG_TURNS_PERCENT);
        let after = self.up_to(if is_long { LONG_TURN_MOST } else { TURN_MOST });
        self.at(after, WorldEvent::TurnEnds(node, actor.clone(), epoch));
    }

    pub(super) fn turn_ends(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        let Some(envelope) = activation.turn.clone() else {
            return;
        };
        let (sender, effects, state) = (
            activation.state.sender,
            activation.state.effects,
            activation.state.encode(),
        );
        self.checkers.turn_ends(actor, epoch);
        for to in Payload::of(&envelope.message).tells {
            let caller = Caller::Actor(actor.clone());
            let outgoing = Outgoing {
                caller,
                sender_incarnation: sender,
                to,
                tells: Vec::new(),
                one_way: true,
                request: None,
            };
            self.send(node, outgoing);
            if !self.is_alive(node) {
                return;
            }
        }
        if !self.is_saved(actor) {
            return self.finish_turn(node, actor, epoch);
        }
        if self.answers_before_save() {
            self.checkers
                .stored
                .answered(envelope.message.header.call, actor, effects);
            self.answer(node, &envelope, Ok(Bytes::new()));
        }
        self.save(node, actor, epoch, state);
    }

    /// Completes a turn and lets its reply leave.
    pub(super) fn finish_turn(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        let Some(envelope) = activation.turn.take() else {
            return;
        };
        let freezes = std::mem::take(&mut activation.freeze_wanted);
        if freezes {
            activation.status = Status::Frozen;
        }
        let effects = activation.state.effects;
        let is_saved = self.is_saved(actor);
        if is_saved {
            self.checkers
                .stored
                .answered(envelope.message.header.call, actor, effects);
        }
        if !(is_saved && self.answers_before_save()) {
            self.answer(node, &envelope, Ok(Bytes::new()));
        }
        if !self.is_alive(node) {
            return;
        }
        if freezes {
            self.frozen(node, actor, epoch);
        } else {
            self.run_turns(node, actor);
        }
    }

    pub(super) fn answer(&mut self, node: NodeId, envelope: &Envelope, outcome: elastin_types::Outcome) {
        let call = envelope.message.header.call;
        if envelope.message.header.one_way {
            return;
        }
        if envelope.direct {
            self.complete(call, outcome);
        } else {
            self.handle(node, Event::Replied { call, outcome });
        }
    }

    /// Like [`World::answer`], after the commands of the current event.
    fn answer_deferred(&mut self, node: NodeId, envelope: &Envelope, outcome: elastin_types::Outcome) {
        if !envelope.message.header.one_way {
            let call = envelope.message.header.call;
            let event = Event::Replied { call, outcome };
            self.at(Duration::ZERO, WorldEvent::Node(node, Box::new(event)));
        }
    }

    /// The capacity of a mailbox.
    pub(crate) fn mailbox_max(&self) -> usize {
        if self.options.tight { 8 } else { 1_000_000 }
    }

    // ---- Deactivation

    pub(super) fn freeze(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, deadline: Time) {
        let Some(activation) = self.activation(node, &actor, epoch) else {
            // It was passivated just now, and the node is about to be notified.
            return;
        };
        assert!(
            activation.status == Status::Open,
            "only an open activation can be frozen"
        );
        if activation.turn.is_some() {
            activation.freeze_wanted = true;
            let at = self.processes[&node].clock.real(deadline);
            self.at_time(at, WorldEvent::FreezeDeadline(node, actor, epoch));
        } else {
            self.frozen(node, &actor, epoch);
        }
    }

    fn frozen(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        activation.status = Status::Frozen;
        let (incarnation, image) = (activation.state.incarnation, Some(activation.state.encode()));
        self.checkers.state.frozen(actor, epoch, incarnation);
        self.last_freeze = self.now;
        let actor = actor.clone();
        let event = Event::Frozen { actor, epoch, image };
        self.at(Duration::ZERO, WorldEvent::Node(node, Box::new(event)));
    }

    pub(super) fn freeze_deadline(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        if let Some(activation) = self.activation(node, &actor, epoch)
            && std::mem::take(&mut activation.freeze_wanted)
        {
            self.log.count("not frozen in time");
            let image = None;
            self.handle(node, Event::Frozen { actor, epoch, image });
        }
    }

    pub(super) fn release(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        let process = self.processes.get_mut(&node).expect("it lives");
        let activation = process.host.activations.remove(&actor).expect("it was frozen");
        assert!(
            activation.epoch == epoch && activation.status == Status::Frozen,
            "only a frozen activation can be released"
        );
        let queue: Vec<Arc<Message>> = activation
            .mailbox
            .into_iter()
            .map(|envelope| envelope.message)
            .collect();
        if !queue.is_empty() {
            self.log.count("queue moved");
        }
        let event = Event::Released { actor, epoch, queue };
        self.at(Duration::ZERO, WorldEvent::Node(node, Box::new(event)));
    }

    /// Passivates an idle activation.
    pub(crate) fn passivate_one(&mut self) {
        let is_idle = |activation: &Activation| {
            activation.status == Status::Open && activation.turn.is_none() && activation.mailbox.is_empty()
        };
        let idle: Vec<(NodeId, ActorId, ActivationEpoch)> = self
            .processes
            .iter()
            .flat_map(|(node, process)| {
                let idle = process
                    .host
                    .activations
                    .iter()
                    .filter(|(_, activation)| is_idle(activation));
                idle.map(|(actor, activation)| (*node, actor.clone(), activation.epoch))
            })
            .collect();
        if let Some((node, actor, epoch)) = self.random.pick(&idle).cloned() {
            self.log.count("passivation");
            let process = self.processes.get_mut(&node).expect("it lives");
            process.host.activations.remove(&actor);
            let after = self.random.between(Duration::ZERO, Duration::from_millis(1));
            let event = Event::Passivated { actor, epoch };
            self.at(after, WorldEvent::Node(node, Box::new(event)));
        }
    }
}

//! What a node's runtime does: activations come, run turns, save, freeze and go.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::store::StateRequest;
use elastin_protocol::{Event, RequestId, StateSource};
use elastin_types::{ActivationEpoch, ActorId, CallError, Caller, Message, NodeId, Overloaded, Time};

use super::callers::{Sending, Task};
use super::{Happening, World};
use crate::check::Turn;
use crate::host::{Activation, Lax, Mail, State, Status};
use crate::show::{show_call, show_caller};

/// How long a turn takes at most.
const TURN_MOST: Duration = Duration::from_micros(500);
/// Some turns take long, so that pauses and the ends of leases fall into them.
const LONG_TURN_MOST: Duration = Duration::from_millis(20);
const LONG_TURNS_PERCENT: u64 = 3;
/// How long loading an actor's state takes at most, and how long the state store takes each way.
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

    // ---- coming

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
            return self.ask_store(node, actor, epoch, request, staged);
        }
        self.bear(node, &actor, epoch, staged, None);
        let after = self.up_to(LOAD_MOST);
        let result = Ok(());
        let event = Event::Activated { actor, epoch, result };
        self.at(after, Happening::Node(node, Box::new(event)));
    }

    /// Gives an activation its state: what came with the move, or what was saved, or nothing.
    pub(super) fn bear(
        &mut self,
        node: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
        staged: Option<State>,
        saved: Option<State>,
    ) {
        self.lives += 1;
        let effects = saved.map_or(0, |saved| saved.effects);
        let mut state = staged.unwrap_or(State {
            life: self.lives,
            born_with: effects,
            effects,
            sender: self.lives,
        });
        let came_from = self.last_host.insert(actor.clone(), node);
        if came_from.is_some_and(|from| !self.lives(from)) {
            state.sender = self.lives;
        }
        let activation = self.activation(node, actor, epoch).expect("it was activated");
        activation.state = state;
    }

    // ---- turns

    pub(super) fn deliver(&mut self, node: NodeId, epoch: ActivationEpoch, message: Arc<Message>) {
        let actor = &message.target.clone();
        let mailbox_max = self.mailbox_max();
        let runs_refused = self.runs_refused();
        match self.activation(node, actor, epoch) {
            Some(activation) if activation.mailbox.len() >= mailbox_max => {
                let mail = Mail { message, direct: false };
                if runs_refused {
                    activation.mailbox.push_back(mail.clone());
                }
                self.log.count("mailbox full");
                self.answer_soon(node, &mail, Err(CallError::Overloaded(Overloaded::Actor)));
            }
            Some(activation) => {
                activation.mailbox.push_back(Mail { message, direct: false });
                self.run_turns(node, actor);
            }
            None => {
                self.log.count("bounce");
                let process = self.processes.get_mut(&node).expect("it lives");
                process.urgent.push_back(Event::Bounced { epoch, message });
            }
        }
    }

    /// Starts a turn if one may start.
    pub(super) fn run_turns(&mut self, node: NodeId, actor: &ActorId) {
        let lax = Lax {
            lease: self.runs_past_lease(),
            overlap: self.overlaps_turns(),
        };
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        let local = process.clock.local(self.now);
        let Some((epoch, mail, state)) = process.host.start_turn(local, actor, lax) else {
            return;
        };
        let task = Task::of(&mail.message);
        let header = &mail.message.header;
        self.last_turn = self.now;
        self.log.note(self.now, Some(actor), || {
            format!(
                "    {node} runs {} of {} for {} (number {})",
                show_call(header.call),
                show_caller(&header.caller),
                actor.key,
                task.number
            )
        });
        let turn = Turn {
            node,
            actor,
            epoch,
            call: header.call,
            request: RequestId::of(&mail.message),
            caller: &header.caller,
            sender_life: task.sender_life,
            number: task.number,
            state,
        };
        self.checkers.turn_starts(&turn, self.now);
        if self.is_saved(actor) {
            let result = self.checkers.stored.runs(actor, epoch);
            self.checkers.note(result);
        }
        let is_long = self.random.chance(LONG_TURNS_PERCENT);
        let after = self.up_to(if is_long { LONG_TURN_MOST } else { TURN_MOST });
        self.at(after, Happening::TurnEnds(node, actor.clone(), epoch));
    }

    pub(super) fn turn_ends(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        let Some(mail) = activation.turn.clone() else {
            return;
        };
        let (sender, effects, state) = (
            activation.state.sender,
            activation.state.effects,
            activation.state.encode(),
        );
        self.checkers.turn_ends(actor, epoch);
        for to in Task::of(&mail.message).tells {
            let caller = Caller::Actor(actor.clone());
            let sending = Sending {
                caller,
                sender_life: sender,
                to,
                tells: Vec::new(),
                one_way: true,
                request: None,
            };
            self.send(node, sending);
            if !self.lives(node) {
                return;
            }
        }
        if !self.is_saved(actor) {
            return self.finish_turn(node, actor, epoch);
        }
        if self.answers_before_save() {
            self.checkers.stored.answered(mail.message.header.call, actor, effects);
            self.answer(node, &mail, Ok(Bytes::new()));
        }
        self.save(node, actor, epoch, state);
    }

    /// Everybody may hear of the turn.
    pub(super) fn finish_turn(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        let Some(mail) = activation.turn.take() else {
            return;
        };
        let freezes = std::mem::take(&mut activation.freeze_wanted);
        if freezes {
            activation.status = Status::Frozen;
        }
        let effects = activation.state.effects;
        let is_saved = self.is_saved(actor);
        if is_saved {
            self.checkers.stored.answered(mail.message.header.call, actor, effects);
        }
        if !(is_saved && self.answers_before_save()) {
            self.answer(node, &mail, Ok(Bytes::new()));
        }
        if !self.lives(node) {
            return;
        }
        if freezes {
            self.frozen(node, actor, epoch);
        } else {
            self.run_turns(node, actor);
        }
    }

    pub(super) fn answer(&mut self, node: NodeId, mail: &Mail, outcome: elastin_types::Outcome) {
        let call = mail.message.header.call;
        if mail.message.header.one_way {
            return;
        }
        if mail.direct {
            self.complete(call, outcome);
        } else {
            self.handle(node, Event::Replied { call, outcome });
        }
    }

    /// The same, when the commands of the event at hand are carried out.
    fn answer_soon(&mut self, node: NodeId, mail: &Mail, outcome: elastin_types::Outcome) {
        if !mail.message.header.one_way {
            let call = mail.message.header.call;
            let event = Event::Replied { call, outcome };
            self.at(Duration::ZERO, Happening::Node(node, Box::new(event)));
        }
    }

    /// How many messages wait in one mailbox at most.
    pub(crate) fn mailbox_max(&self) -> usize {
        if self.options.tight { 8 } else { 1_000_000 }
    }

    // ---- going

    pub(super) fn freeze(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, deadline: Time) {
        let Some(activation) = self.activation(node, &actor, epoch) else {
            // It ended by itself just now, which the node will hear of.
            return;
        };
        assert!(activation.status == Status::Open, "only what runs can be frozen");
        if activation.turn.is_some() {
            activation.freeze_wanted = true;
            let at = self.processes[&node].clock.real(deadline);
            self.at_time(at, Happening::FreezeDeadline(node, actor, epoch));
        } else {
            self.frozen(node, &actor, epoch);
        }
    }

    fn frozen(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        activation.status = Status::Frozen;
        let (life, image) = (activation.state.life, Some(activation.state.encode()));
        self.checkers.state.frozen(actor, epoch, life);
        self.last_freeze = self.now;
        let actor = actor.clone();
        let event = Event::Frozen { actor, epoch, image };
        self.at(Duration::ZERO, Happening::Node(node, Box::new(event)));
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
            "only what is frozen is released"
        );
        let queue: Vec<Arc<Message>> = activation.mailbox.into_iter().map(|mail| mail.message).collect();
        if !queue.is_empty() {
            self.log.count("queue moved");
        }
        let event = Event::Released { actor, epoch, queue };
        self.at(Duration::ZERO, Happening::Node(node, Box::new(event)));
    }

    /// An activation that has nothing to do ends by itself.
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
            self.at(after, Happening::Node(node, Box::new(event)));
        }
    }
}

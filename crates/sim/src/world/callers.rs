//! Callers and operators: calls, tells, moves and drains.

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::membership::{MembershipEvent, Role};
use elastin_protocol::{Event, MoveId, PlannedMove, RequestId};
use elastin_types::{
    ActorId, CallError, CallId, Caller, Header, Message, Method, NodeId, Outcome, Overloaded, Request,
};
use serde::{Deserialize, Serialize};

use super::{Moving, World};
use crate::host::Envelope;

/// The deadline of a call where messages may be lost.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// One in this number of calls of a node has a short deadline, about the time of a few messages, so that every world
/// with faults has late replies.
const SHORT_DEADLINE_EVERY: u64 = 32;
const SHORT_DEADLINE: Duration = Duration::from_millis(10);

/// The most actors that each side of an exchange moves.
const EXCHANGE_MAX: usize = 4;

/// The most actors of a group move.
const GROUP_MOST: u64 = 4;

/// The content of a simulated message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Payload {
    /// The sender's incarnation, and the number of this message from it to this receiver.
    pub(super) sender_incarnation: u64,
    pub(super) number: u64,
    /// The actors that the receiver sends a tell to in turn.
    pub(super) tells: Vec<ActorId>,
}

/// A message to send.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) caller: Caller,
    pub(super) sender_incarnation: u64,
    pub(super) to: ActorId,
    /// The actors that the receiver sends a tell to in turn.
    pub(super) tells: Vec<ActorId>,
    pub(super) one_way: bool,
    /// The request that this call belongs to.
    pub(super) request: Option<u64>,
}

impl Payload {
    pub(super) fn of(message: &Message) -> Self {
        postcard::from_bytes(&message.body).expect("the workload encoded it")
    }
}

impl World {
    /// Sends a call or tell from a client to an actor, which sends tells to others in turn.
    pub(crate) fn client_sends(&mut self, client: NodeId, to: &ActorId, tells: Vec<ActorId>, one_way: bool) -> CallId {
        let outgoing = Outgoing {
            caller: Caller::Client(client),
            sender_incarnation: 0,
            to: to.clone(),
            tells,
            one_way,
            request: None,
        };
        self.send(client, outgoing)
    }

    pub(super) fn send(&mut self, node: NodeId, outgoing: Outgoing) -> CallId {
        let Outgoing {
            caller,
            sender_incarnation,
            to,
            tells,
            one_way,
            request,
        } = outgoing;
        let sequence = self.next_call.entry(node).or_insert(0);
        *sequence += 1;
        let call = CallId {
            origin: node,
            sequence: *sequence,
        };
        let pair = (caller.clone(), sender_incarnation, to.clone());
        let number = self.pair_numbers.entry(pair).or_insert(0);
        *number += 1;
        let payload = Payload {
            sender_incarnation,
            number: *number,
            tells,
        };
        let process = self.processes.get_mut(&node).expect("the sender lives");
        let is_short = match request {
            None => call.sequence.is_multiple_of(SHORT_DEADLINE_EVERY),
            Some(_) => call.sequence.is_multiple_of(2),
        };
        let timeout = match is_short {
            true => SHORT_DEADLINE,
            false => CALL_DEADLINE,
        };
        let deadline = self.options.may_lose().then(|| process.clock.local(self.now) + timeout);
        let message = Arc::new(Message {
            target: to.clone(),
            header: Header {
                deadline: deadline.filter(|_| !one_way),
                one_way,
                request: request.map(|number| Request {
                    number,
                    settled_below: 0,
                }),
                ..Header::of_call(call, caller)
            },
            method: Method::of("run"),
            body: postcard::to_stdvec(&payload).expect("a payload can be encoded").into(),
        });
        let id = RequestId::of(&message);
        self.checkers.outcome.call_begins(call, one_way, id);
        if id.is_some() || !process.host.is_open(&to) {
            self.handle(node, Event::Send { message });
            return call;
        }
        let activation = process.host.activations.get_mut(&to).expect("it is open");
        let waiting = activation.mailbox.len();
        if waiting >= self.mailbox_max() {
            self.log.count("mailbox full");
            self.complete(call, Err(CallError::Overloaded(Overloaded::Actor)));
            return call;
        }
        self.log.count("direct send");
        let process = self.processes.get_mut(&node).expect("the sender lives");
        let activation = process.host.activations.get_mut(&to).expect("it is open");
        activation.mailbox.push_back(Envelope { message, direct: true });
        self.run_turns(node, &to);
        call
    }

    pub(super) fn complete(&mut self, call: CallId, outcome: Outcome) {
        self.log.mix(call.sequence ^ u64::from(outcome.is_ok()));
        self.log.count(match &outcome {
            Ok(_) => "call answered",
            Err(error) => match error {
                CallError::Unknown(_) => "call unknown",
                CallError::NotDelivered(_) => "call not delivered",
                CallError::DeadlineExceeded => "call late",
                CallError::Overloaded(_) => "call overloaded",
                _ => "call refused",
            },
        });
        self.checkers.call_ends(call, &outcome);
        self.ended.insert(call, self.now);
        self.request_ended(call, &outcome);
    }

    /// Requests a move of an actor; `None` if it is not active.
    pub(crate) fn move_actor(&mut self, actor: &ActorId, to: NodeId) -> Option<MoveId> {
        let source = self.host_of(actor)?;
        let id = self.new_move(actor, source, to);
        let actor = actor.clone();
        self.handle(source, Event::Move { id, actor, to });
        Some(id)
    }

    /// The host of an open actor, unless its node is paused.
    pub(crate) fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.processes
            .iter()
            .find(|(_, process)| process.host.is_open(actor) && !self.paused.contains_key(&process.pid))
            .map(|(node, _)| *node)
    }

    /// The owner of the actor's directory slot in the latest view.
    pub(crate) fn directory_of(&self, actor: &ActorId) -> NodeId {
        let views = self.processes.values().filter_map(|process| process.node.view());
        let view = views.max_by_key(|view| view.revision).expect("some node has a view");
        view.directory_of(actor).node
    }

    // ---- Scaling

    /// Starts to drain a server: it accepts no new actors, and moves its own away.
    pub(crate) fn retire(&mut self, node: NodeId) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        process.retiring = true;
        self.log.note_world(now, || format!("{node} drains"));
        // Any member may request it.
        let members: Vec<NodeId> = self.processes.keys().copied().collect();
        if let Some(by) = self.random.pick(&members).copied() {
            let pid = self.processes[&by].pid;
            let draining = true;
            self.membership(pid, MembershipEvent::Drain { node, draining });
        }
    }

    /// Lets draining servers move their actors away, and leave when they have none.
    pub(crate) fn drain_step(&mut self) {
        let retiring = self.processes.iter().filter(|(_, process)| process.retiring);
        let retiring: Vec<NodeId> = retiring.map(|(node, _)| *node).collect();
        for node in retiring {
            let process = &self.processes[&node];
            let is_moving = process.node.table_sizes().moves_waiting > 0;
            if process.host.activations.is_empty() {
                self.leave_if_empty(node);
            } else if !is_moving && !self.paused.contains_key(&process.pid) {
                self.move_all(node);
            }
        }
    }

    /// Moves all actors of a server away at once.
    fn move_all(&mut self, source: NodeId) {
        let actors: Vec<ActorId> = self.processes[&source].host.activations.keys().cloned().collect();
        let servers = self.servers();
        let mut moves = Vec::new();
        for actor in actors {
            let Some(to) = self.random.pick(&servers).copied() else {
                return;
            };
            let id = self.new_move(&actor, source, to);
            moves.push(PlannedMove { id, actor, to });
        }
        self.log.count("many moves at once");
        self.handle(source, Event::Moves(moves));
    }

    /// Lets two servers exchange some actors.
    pub(crate) fn exchange(&mut self) {
        let servers = self.servers();
        let (Some(one), Some(other)) = (self.random.pick(&servers).copied(), self.random.pick(&servers).copied())
        else {
            return;
        };
        for (source, to) in [(one, other), (other, one)] {
            let Some(process) = self.processes.get(&source) else {
                return;
            };
            if source == to || self.paused.contains_key(&process.pid) {
                return;
            }
            let actors: Vec<ActorId> = process.host.activations.keys().take(EXCHANGE_MAX).cloned().collect();
            let moves = actors.into_iter().map(|actor| {
                let id = self.new_move(&actor, source, to);
                PlannedMove { id, actor, to }
            });
            let moves = moves.collect();
            self.log.count("exchange");
            self.handle(source, Event::Moves(moves));
        }
    }

    /// Moves some actors of a server to another one as a group.
    pub(crate) fn move_together(&mut self) {
        let servers = self.servers();
        let (Some(source), Some(to)) = (self.random.pick(&servers).copied(), self.random.pick(&servers).copied())
        else {
            return;
        };
        let process = &self.processes[&source];
        if self.paused.contains_key(&process.pid) {
            return;
        }
        let skipped = self.random.below(4) as usize;
        let count = 2 + self.random.below(GROUP_MOST - 1) as usize;
        let activations = &self.processes[&source].host.activations;
        let actors: Vec<ActorId> = activations.keys().skip(skipped).take(count).cloned().collect();
        let moves = actors.into_iter().map(|actor| {
            let id = self.new_move(&actor, source, to);
            PlannedMove { id, actor, to }
        });
        let moves: Vec<PlannedMove> = moves.collect();
        self.log.count("group");
        self.checkers.groups.begins(moves.iter().map(|planned| planned.id));
        self.handle(source, Event::MoveTogether(moves));
    }

    fn new_move(&mut self, actor: &ActorId, source: NodeId, to: NodeId) -> MoveId {
        self.next_move += 1;
        let id = MoveId(self.next_move);
        let moving = Moving {
            actor: actor.clone(),
            source,
            to,
            began: self.now,
            ended: None,
        };
        self.moves.insert(id, moving);
        id
    }

    fn leave_if_empty(&mut self, node: NodeId) {
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        let is_known = process.node.view().is_some_and(|view| !view.takes_actors(node));
        if self.paused.contains_key(&process.pid) || !is_known {
            return;
        }
        if process.node.may_go() {
            let pid = process.pid;
            self.membership(pid, MembershipEvent::Leave);
        } else {
            self.handle(node, Event::Leave);
        }
    }

    /// Starts a server, which joins.
    pub(crate) fn add_server(&mut self) {
        self.begin(Role::Server, None);
    }
}

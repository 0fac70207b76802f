//! The simulated world: nodes, the network between them, and what happens when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::{
    Command, Event, Frame, Limits, Member, MoveError, MoveId, Node, NodeConfig, SlotTable, StateSource, View,
};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallId, Caller, ChainId, Header, Message, Method, NodeId, Outcome, SlotEpoch,
    TenantId, Time,
};
use serde::{Deserialize, Serialize};

use crate::Options;
use crate::check::{Checkers, Turn};
use crate::host::{Host, Mail, State, Status};
use crate::log::Log;
use crate::network::Network;
use crate::random::Random;

/// How long after a crash the membership drops the node: its lease, and the hold.
const DEATH_LEAST: Duration = Duration::from_millis(300);
/// The same, at most.
const DEATH_MOST: Duration = Duration::from_millis(900);
/// How long a turn takes at most.
const TURN_MOST: Duration = Duration::from_micros(500);
/// How long loading an actor's state takes at most.
const LOAD_MOST: Duration = Duration::from_millis(3);
/// How long placement takes at most.
const PLACEMENT_MOST: Duration = Duration::from_millis(2);
/// How long the news of a new view takes to a node at most.
const VIEW_MOST: Duration = Duration::from_millis(20);
/// How long it takes at most until a node notices that a connection broke, and until it has a new one.
const LINK_MOST: Duration = Duration::from_millis(50);
/// How long a caller waits where messages may be lost.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// What a simulated message says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    /// The sender's life, and the number of this message from it to this receiver.
    sender_life: u64,
    number: u64,
    /// Whom the receiver shall tell something in turn.
    tells: Vec<ActorId>,
}

/// Something that will happen.
#[derive(Debug)]
enum Happening {
    Frame {
        from: NodeId,
        to: NodeId,
        connection: u64,
        frame: Box<Frame>,
    },
    Node(NodeId, Box<Event>),
    TurnEnds(NodeId, ActorId, ActivationEpoch),
    FreezeDeadline(NodeId, ActorId, ActivationEpoch),
    Timer(NodeId),
    Publish,
    /// A direction that was cut is whole again.
    Heal,
}

/// A process.
#[derive(Debug)]
struct Process {
    node: Node,
    host: Host,
    member: Member,
    /// The time for which a timer is set.
    timer: Option<Time>,
    /// Events that must be handled before any other.
    urgent: VecDeque<Event>,
    /// It is leaving: it has been told to move everything away.
    retiring: bool,
}

/// Where a run shall crash a node: after this many of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrashPoint {
    /// The node.
    pub(crate) node: NodeId,
    /// After how many of its commands, counted from when the point was set.
    pub(crate) after_commands: u64,
}

/// The simulated world.
pub(crate) struct World {
    pub(crate) now: Time,
    options: Options,
    random: Random,
    network: Network,
    queue: BTreeMap<(Time, u64), Happening>,
    queued: u64,
    processes: BTreeMap<NodeId, Process>,
    /// Members as the coordination service knows them; the dead leave some time after they died.
    members: BTreeMap<NodeId, Member>,
    slots: Option<SlotTable>,
    revision: u64,
    published: u64,
    next_call: BTreeMap<NodeId, u64>,
    pair_numbers: BTreeMap<(Caller, u64, ActorId), u64>,
    lives: u64,
    /// Where each actor was last activated.
    last_host: BTreeMap<ActorId, NodeId>,
    next_move: u64,
    pub(crate) moves: BTreeMap<MoveId, Option<Result<ActivationEpoch, MoveError>>>,
    pub(crate) checkers: Checkers,
    pub(crate) log: Log,
    pub(crate) events: u64,
    pub(crate) crash_point: Option<CrashPoint>,
    crashed: BTreeSet<NodeId>,
    /// Commands carried out per node.
    pub(crate) commands: BTreeMap<NodeId, u64>,
    /// When each call ended.
    pub(crate) ended: BTreeMap<CallId, Time>,
    /// When an actor was last frozen, and when a turn last started.
    pub(crate) last_freeze: Time,
    pub(crate) last_turn: Time,
}

/// The actor with this number.
pub(crate) fn actor(number: u64) -> ActorId {
    ActorId::new(ActorType::of("Simulated"), number)
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options, keep_lines: bool) -> Self {
        let mut random = Random::new(seed);
        let network = Network::new(random.fork(), options.delay_most, options.exact);
        let mut world = Self {
            now: Time(1_000_000),
            options: options.clone(),
            random,
            network,
            queue: BTreeMap::new(),
            queued: 0,
            processes: BTreeMap::new(),
            members: BTreeMap::new(),
            slots: None,
            revision: 0,
            published: 0,
            next_call: BTreeMap::new(),
            pair_numbers: BTreeMap::new(),
            lives: 0,
            last_host: BTreeMap::new(),
            next_move: 0,
            moves: BTreeMap::new(),
            checkers: Checkers::default(),
            log: Log::new(keep_lines),
            events: 0,
            crash_point: None,
            crashed: BTreeSet::new(),
            commands: BTreeMap::new(),
            ended: BTreeMap::new(),
            last_freeze: Time::ZERO,
            last_turn: Time::ZERO,
        };
        if options.supervisor {
            world.join(Member::CLIENT);
        }
        for _ in 0..options.servers {
            world.join(Member::SERVER);
        }
        for _ in 0..options.clients {
            world.join(Member::CLIENT);
        }
        world.publish();
        world
    }

    // ---- membership

    /// A new process joins; everybody hears of it some time later.
    pub(crate) fn join(&mut self, member: Member) -> NodeId {
        self.revision += 1;
        let id = NodeId(self.revision);
        let limits = Limits {
            chunk_bytes: 8,
            move_deadline: Duration::from_secs(2),
            freeze_deadline: Duration::from_millis(500),
            retransmit_after: Duration::from_millis(200),
            tombstone_for: Duration::from_millis(500),
            ..Limits::default()
        };
        let hosts = member.hosts;
        #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut node = Node::new(NodeConfig { me: id, hosts, limits });
        #[cfg(feature = "planted-bugs")]
        if let Some(bug) = self.options.bug {
            node.plant(bug);
        }
        let process = Process {
            node,
            host: Host::default(),
            member,
            timer: None,
            urgent: VecDeque::new(),
            retiring: false,
        };
        self.processes.insert(id, process);
        self.members.insert(id, member);
        self.log.note(self.now, format_args!("{id} joins: {member:?}"));
        id
    }

    /// Publishes who is there now.
    pub(crate) fn publish(&mut self) {
        self.revision += 1;
        let mut owners: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(_, member)| member.hosts && !member.draining)
            .map(|(node, _)| *node)
            .collect();
        if self.options.supervisor {
            owners = self.members.keys().copied().take(1).collect();
        }
        if owners.is_empty() {
            return;
        }
        let table = match self.slots.take() {
            None => SlotTable::shared_by(&owners, SlotEpoch(1)),
            Some(table) => table,
        };
        let table = table.rebalanced(&owners).unwrap_or(table);
        self.slots = Some(table.clone());
        let view = View {
            revision: self.revision,
            members: Arc::new(self.members.clone()),
            slots: table,
        };
        self.published = self.revision;
        self.log.note(
            self.now,
            format_args!("view {}: {:?}", view.revision, view.members.keys()),
        );
        let listeners: Vec<NodeId> = self.processes.keys().copied().collect();
        for node in listeners {
            let after = self.random.between(Duration::ZERO, VIEW_MOST);
            self.at(after, Happening::Node(node, Box::new(Event::View(view.clone()))));
        }
    }

    pub(crate) fn publish_soon(&mut self) {
        self.at(Duration::from_millis(1), Happening::Publish);
    }

    /// A process stops, and everything in it with it.
    pub(crate) fn crash(&mut self, node: NodeId) {
        if self.processes.remove(&node).is_none() {
            return;
        }
        self.log.note(self.now, format_args!("{node} CRASHES"));
        self.log.count("crash");
        self.crashed.insert(node);
        self.checkers.activation.node_stops(node);
        let after = self.random.between(DEATH_LEAST, DEATH_MOST);
        // The membership drops it when its lease has run out and the hold has passed.
        self.at(after, Happening::Publish);
    }

    fn drop_the_dead(&mut self) {
        let crashed = std::mem::take(&mut self.crashed);
        self.members.retain(|node, _| !crashed.contains(node));
    }

    /// A server is to leave: it takes no new actors, and gives away those it has.
    pub(crate) fn retire(&mut self, node: NodeId) {
        if let Some(process) = self.processes.get_mut(&node) {
            process.retiring = true;
            if let Some(member) = self.members.get_mut(&node) {
                member.draining = true;
                process.member.draining = true;
            }
            self.publish_soon();
        }
    }

    /// Servers that take actors.
    pub(crate) fn servers(&self) -> Vec<NodeId> {
        let takes = |node: &NodeId| {
            self.members
                .get(node)
                .is_some_and(|member| member.hosts && !member.draining)
        };
        self.processes.keys().copied().filter(|node| takes(node)).collect()
    }

    /// Members that host nothing and keep no slots.
    pub(crate) fn clients(&self) -> Vec<NodeId> {
        let skip = usize::from(self.options.supervisor);
        self.processes
            .iter()
            .filter(|(_, process)| !process.member.hosts)
            .map(|(node, _)| *node)
            .skip(skip)
            .collect()
    }

    pub(crate) fn lives(&self, node: NodeId) -> bool {
        self.processes.contains_key(&node)
    }

    // ---- time

    fn at(&mut self, after: Duration, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + after, self.queued), happening);
    }

    /// How long something takes.
    fn up_to(&mut self, most: Duration) -> Duration {
        match self.options.exact {
            true => Duration::ZERO,
            false => self.random.between(Duration::ZERO, most),
        }
    }

    /// Lets time pass until `end`, or until nothing is left to happen.
    pub(crate) fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end || !self.checkers.violations.is_empty() {
                break;
            }
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.happen(happening);
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Frame {
                from,
                to,
                connection,
                frame,
            } => {
                if self.network.arrives(from, to, connection) {
                    self.handle(to, Event::Frame { from, frame: *frame });
                }
            }
            Happening::Node(node, event) => self.handle(node, *event),
            Happening::TurnEnds(node, actor, epoch) => self.turn_ends(node, &actor, epoch),
            Happening::FreezeDeadline(node, actor, epoch) => self.freeze_deadline(node, actor, epoch),
            Happening::Timer(node) => {
                if let Some(process) = self.processes.get_mut(&node)
                    && process.timer.is_some_and(|at| at <= self.now)
                {
                    process.timer = None;
                    self.handle(node, Event::Timer);
                }
            }
            Happening::Publish => {
                self.drop_the_dead();
                self.publish();
            }
            Happening::Heal => self.heal(),
        }
    }

    // ---- the driver

    /// Feeds an event to a node and carries out what it wants done.
    pub(crate) fn handle(&mut self, id: NodeId, event: Event) {
        let mut commands = Vec::new();
        let mut event = Some(event);
        while let Some(next) = event {
            let Some(process) = self.processes.get_mut(&id) else {
                return;
            };
            self.events += 1;
            self.log.mix(self.now.0 ^ id.0);
            self.log.note(self.now, format_args!("{id} ← {}", show_event(&next)));
            process.node.handle(self.now, next, &mut commands);
            for command in commands.drain(..) {
                if self.crash_is_due(id) {
                    self.crash(id);
                    return;
                }
                self.carry_out(id, command);
                if !self.processes.contains_key(&id) {
                    return;
                }
            }
            event = self
                .processes
                .get_mut(&id)
                .and_then(|process| process.urgent.pop_front());
        }
        self.set_timer(id);
    }

    fn crash_is_due(&mut self, id: NodeId) -> bool {
        *self.commands.entry(id).or_insert(0) += 1;
        match &mut self.crash_point {
            Some(point) if point.node == id => {
                if point.after_commands == 0 {
                    self.crash_point = None;
                    return true;
                }
                point.after_commands -= 1;
                false
            }
            _ => false,
        }
    }

    fn set_timer(&mut self, id: NodeId) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(wanted) = process.node.next_timer() else {
            return;
        };
        if process.timer.is_none_or(|set| wanted < set || set < self.now) {
            process.timer = Some(wanted);
            let after = wanted.since(self.now);
            self.at(after, Happening::Timer(id));
        }
    }

    fn carry_out(&mut self, id: NodeId, command: Command) {
        self.log
            .note(self.now, format_args!("  {id} → {}", show_command(&command)));
        match command {
            Command::Transmit { to, frame } => {
                self.log.mix(frame.number ^ (to.0 << 32));
                if let Some((at, connection)) = self.network.send(self.now, id, to) {
                    let after = at.since(self.now);
                    self.at(
                        after,
                        Happening::Frame {
                            from: id,
                            to,
                            connection,
                            frame: Box::new(frame),
                        },
                    );
                }
            }
            Command::Complete { call, outcome } => self.complete(call, outcome),
            Command::Deliver { actor, epoch, message } => self.deliver(id, &actor, epoch, message),
            Command::Activate { actor, epoch, source } => self.activate(id, actor, epoch, source),
            Command::Open { actor, epoch } => {
                if let Some(activation) = self.activation(id, &actor, epoch) {
                    activation.status = Status::Open;
                    self.run_turns(id, &actor);
                }
            }
            Command::Freeze { actor, epoch, deadline } => self.freeze(id, actor, epoch, deadline),
            Command::Resume { actor, epoch } => {
                let activation = self.activation(id, &actor, epoch).expect("it was frozen");
                activation.status = Status::Open;
                self.log.count("move undone");
                self.run_turns(id, &actor);
            }
            Command::Release { actor, epoch } => self.release(id, actor, epoch),
            Command::Discard { actor, .. } => {
                let process = self.processes.get_mut(&id).expect("it lives");
                process.host.activations.remove(&actor);
            }
            Command::NeedPlacement { actor, .. } => {
                let servers = self.servers();
                let node = self.random.pick(&servers).copied();
                let after = self.up_to(PLACEMENT_MOST);
                let event = Event::Placed { actor, node };
                self.at(after, Happening::Node(id, Box::new(event)));
            }
            Command::MoveEnded { id, result } => {
                self.log.count(if result.is_ok() { "move done" } else { "move failed" });
                let before = self.moves.insert(id, Some(result));
                assert!(before == Some(None), "a move ends once: {id:?}");
            }
        }
    }

    fn activation(
        &mut self,
        node: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
    ) -> Option<&mut crate::host::Activation> {
        self.processes.get_mut(&node)?.host.get(actor, epoch)
    }

    // ---- the runtime

    fn activate(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, source: StateSource) {
        self.lives += 1;
        let fresh = State {
            life: self.lives,
            effects: 0,
            sender: self.lives,
        };
        self.log.count(match source {
            StateSource::Fresh => "activation",
            StateSource::Staged(_) => "arrival",
        });
        let process = self.processes.get_mut(&node).expect("it lives");
        process.host.activate(actor.clone(), epoch, &source, fresh);
        let came_from = self.last_host.insert(actor.clone(), node);
        if came_from.is_some_and(|from| !self.lives(from)) {
            let sender = self.lives;
            let activation = self.activation(node, &actor, epoch).expect("it was activated");
            activation.state.sender = sender;
        }
        let after = self.up_to(LOAD_MOST);
        let event = Event::Activated {
            actor,
            epoch,
            result: Ok(()),
        };
        self.at(after, Happening::Node(node, Box::new(event)));
    }

    fn deliver(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch, message: Message) {
        match self.activation(node, actor, epoch) {
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
    fn run_turns(&mut self, node: NodeId, actor: &ActorId) {
        let Some(process) = self.processes.get_mut(&node) else {
            return;
        };
        let Some((epoch, mail, state)) = process.host.start_turn(actor) else {
            return;
        };
        let task: Task = postcard::from_bytes(&mail.message.body).expect("the workload made it");
        let header = &mail.message.header;
        self.last_turn = self.now;
        self.log.note(
            self.now,
            format_args!(
                "    {node} runs {} of {} for {} (number {})",
                show_call(header.call),
                show_caller(&header.caller),
                actor.key,
                task.number
            ),
        );
        self.checkers.turn_starts(&Turn {
            node,
            actor,
            epoch,
            call: header.call,
            caller: &header.caller,
            sender_life: task.sender_life,
            number: task.number,
            state,
        });
        let after = self.up_to(TURN_MOST);
        self.at(after, Happening::TurnEnds(node, actor.clone(), epoch));
    }

    fn turn_ends(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let Some(activation) = self.activation(node, actor, epoch) else {
            return;
        };
        let Some(mail) = activation.turn.take() else {
            return;
        };
        let sender = activation.state.sender;
        let freezes = std::mem::take(&mut activation.freeze_wanted);
        if freezes {
            activation.status = Status::Frozen;
        }
        self.checkers.turn_ends(actor, epoch);
        let task: Task = postcard::from_bytes(&mail.message.body).expect("the workload made it");
        for to in task.tells {
            let caller = Caller::Actor(actor.clone());
            self.send(node, caller, sender, &to, Vec::new(), true);
            if !self.lives(node) {
                return;
            }
        }
        let call = mail.message.header.call;
        if !mail.message.header.one_way {
            if mail.direct {
                self.complete(call, Ok(Bytes::new()));
            } else {
                let outcome = Ok(Bytes::new());
                self.handle(node, Event::Replied { call, outcome });
            }
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

    fn freeze(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch, deadline: Time) {
        let Some(activation) = self.activation(node, &actor, epoch) else {
            // It ended by itself just now, which the node will hear of.
            return;
        };
        assert!(activation.status == Status::Open, "only what runs can be frozen");
        if activation.turn.is_some() {
            activation.freeze_wanted = true;
            let after = deadline.since(self.now);
            self.at(after, Happening::FreezeDeadline(node, actor, epoch));
        } else {
            self.frozen(node, &actor, epoch);
        }
    }

    fn frozen(&mut self, node: NodeId, actor: &ActorId, epoch: ActivationEpoch) {
        let activation = self.activation(node, actor, epoch).expect("the caller has it");
        activation.status = Status::Frozen;
        let image = Some(activation.state.encode());
        self.last_freeze = self.now;
        let actor = actor.clone();
        let event = Event::Frozen { actor, epoch, image };
        self.at(Duration::ZERO, Happening::Node(node, Box::new(event)));
    }

    fn freeze_deadline(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        if let Some(activation) = self.activation(node, &actor, epoch)
            && std::mem::take(&mut activation.freeze_wanted)
        {
            let image = None;
            self.handle(node, Event::Frozen { actor, epoch, image });
        }
    }

    fn release(&mut self, node: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        let process = self.processes.get_mut(&node).expect("it lives");
        let activation = process.host.activations.remove(&actor).expect("it was frozen");
        assert!(
            activation.epoch == epoch && activation.status == Status::Frozen,
            "only what is frozen is released"
        );
        let queue: Vec<Message> = activation.mailbox.into_iter().map(|mail| mail.message).collect();
        if !queue.is_empty() {
            self.log.count("queue moved");
        }
        let event = Event::Released { actor, epoch, queue };
        self.at(Duration::ZERO, Happening::Node(node, Box::new(event)));
    }

    /// An activation that has nothing to do ends by itself.
    pub(crate) fn passivate_one(&mut self) {
        let idle: Vec<(NodeId, ActorId, ActivationEpoch)> = self
            .processes
            .iter()
            .flat_map(|(node, process)| {
                process.host.activations.iter().filter_map(|(actor, activation)| {
                    let idle =
                        activation.status == Status::Open && activation.turn.is_none() && activation.mailbox.is_empty();
                    idle.then(|| (*node, actor.clone(), activation.epoch))
                })
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

    // ---- callers

    /// A client calls or tells an actor, which tells others in turn.
    pub(crate) fn client_sends(&mut self, client: NodeId, to: &ActorId, tells: Vec<ActorId>, one_way: bool) -> CallId {
        self.send(client, Caller::Client(client), 0, to, tells, one_way)
    }

    fn send(
        &mut self,
        node: NodeId,
        caller: Caller,
        sender_life: u64,
        to: &ActorId,
        tells: Vec<ActorId>,
        one_way: bool,
    ) -> CallId {
        let sequence = self.next_call.entry(node).or_insert(0);
        *sequence += 1;
        let call = CallId {
            origin: node,
            sequence: *sequence,
        };
        let pair = (caller.clone(), sender_life, to.clone());
        let number = self.pair_numbers.entry(pair).or_insert(0);
        *number += 1;
        let task = Task {
            sender_life,
            number: *number,
            tells,
        };
        let deadline = self.options.faults.may_lose().then(|| self.now + CALL_DEADLINE);
        let message = Message {
            target: to.clone(),
            header: Header {
                call,
                chain: ChainId(call),
                caller,
                tenant: TenantId::default(),
                deadline: deadline.filter(|_| !one_way),
                one_way,
                expected_cost: None,
                trace: None,
                source_time_ms: 0,
                context: None,
            },
            method: Method::of("run"),
            body: postcard::to_stdvec(&task).expect("a task can be encoded").into(),
        };
        self.checkers.outcome.call_begins(call, one_way);
        let process = self.processes.get_mut(&node).expect("the sender lives");
        if process.host.is_open(to) {
            self.log.count("direct send");
            let activation = process.host.activations.get_mut(to).expect("it is open");
            activation.mailbox.push_back(Mail { message, direct: true });
            self.run_turns(node, to);
        } else {
            self.handle(node, Event::Send { message });
        }
        call
    }

    fn complete(&mut self, call: CallId, outcome: Outcome) {
        self.log.mix(call.sequence ^ u64::from(outcome.is_ok()));
        self.log.count(match &outcome {
            Ok(_) => "call answered",
            Err(error) => match error {
                elastin_types::CallError::Unknown(_) => "call unknown",
                elastin_types::CallError::NotDelivered(_) => "call not delivered",
                elastin_types::CallError::DeadlineExceeded => "call late",
                _ => "call refused",
            },
        });
        self.checkers.call_ends(call, &outcome);
        self.ended.insert(call, self.now);
    }

    /// Asks for a move of an actor, wherever it is; returns its name if it is anywhere.
    pub(crate) fn move_actor(&mut self, actor: &ActorId, to: NodeId) -> Option<MoveId> {
        let host = self
            .processes
            .iter()
            .find(|(_, process)| process.host.is_open(actor))
            .map(|(node, _)| *node)?;
        self.next_move += 1;
        let id = MoveId(self.next_move);
        self.moves.insert(id, None);
        let actor = actor.clone();
        self.handle(host, Event::Move { id, actor, to });
        Some(id)
    }

    /// Where an actor is open.
    pub(crate) fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        self.processes
            .iter()
            .find(|(_, process)| process.host.is_open(actor))
            .map(|(node, _)| *node)
    }

    /// Servers that are being emptied give away what they have.
    pub(crate) fn drain_step(&mut self) {
        let retiring: Vec<NodeId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.retiring)
            .map(|(node, _)| *node)
            .collect();
        for node in retiring {
            let actors: Vec<ActorId> = self.processes[&node].host.activations.keys().cloned().collect();
            let servers = self.servers();
            for actor in &actors {
                if let Some(to) = self.random.pick(&servers).copied() {
                    self.move_actor(actor, to);
                }
            }
        }
    }

    // ---- faults

    /// A connection breaks: what is on it is lost, both ends hear of it, and later there is a new one.
    pub(crate) fn break_link(&mut self, one: NodeId, other: NodeId) {
        self.log.count("link break");
        for (from, to) in [(one, other), (other, one)] {
            self.network.break_link(from, to);
            let down = self.random.between(Duration::ZERO, LINK_MOST);
            let up = down + self.random.between(Duration::ZERO, LINK_MOST);
            self.at(down, Happening::Node(from, Box::new(Event::LinkDown { peer: to })));
            self.at(up, Happening::Node(from, Box::new(Event::LinkUp { peer: to })));
        }
    }

    /// Nothing gets through in one direction for a while, and nobody is told.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        if self.network.is_cut(from, to) {
            return;
        }
        self.log.count("cut");
        self.network.cut(from, to);
        let after = self
            .random
            .between(Duration::from_millis(10), Duration::from_millis(600));
        self.at(after, Happening::Heal);
    }

    /// The network is whole again.
    pub(crate) fn heal(&mut self) {
        self.network.heal();
    }

    /// Who owns the actor's directory slot.
    pub(crate) fn directory_of(&self, actor: &ActorId) -> NodeId {
        let table = self.slots.as_ref().expect("a view was published");
        table.owner(elastin_protocol::Slot::of(actor)).node
    }

    pub(crate) fn any_process(&mut self) -> Option<NodeId> {
        let all: Vec<NodeId> = self.processes.keys().copied().collect();
        self.random.pick(&all).copied()
    }

    /// How full the tables of all nodes are.
    pub(crate) fn table_sizes(&self) -> Vec<(NodeId, elastin_protocol::TableSizes)> {
        self.processes
            .iter()
            .map(|(node, process)| (*node, process.node.table_sizes()))
            .collect()
    }
}

fn show_call(call: CallId) -> String {
    format!("{}#{}", call.origin, call.sequence)
}

fn show_caller(caller: &Caller) -> String {
    match caller {
        Caller::Client(node) => format!("client {node}"),
        Caller::Actor(actor) => format!("actor {}", actor.key),
    }
}

fn show_event(event: &Event) -> String {
    match event {
        Event::Send { message } => format!(
            "send {} from {} to {}",
            show_call(message.header.call),
            show_caller(&message.header.caller),
            message.target.key
        ),
        Event::Frame { from, frame } => format!(
            "from {from} #{} ack {}: {}",
            frame.number,
            frame.acknowledged,
            show_body(frame)
        ),
        Event::View(view) => format!("view {}", view.revision),
        other => shortened(format!("{other:?}")),
    }
}

fn show_command(command: &Command) -> String {
    match command {
        Command::Transmit { to, frame } => format!(
            "to {to} #{} ack {}: {}",
            frame.number,
            frame.acknowledged,
            show_body(frame)
        ),
        Command::Deliver { actor, epoch, message } => {
            format!("deliver {} to {} {epoch}", show_call(message.header.call), actor.key)
        }
        other => shortened(format!("{other:?}")),
    }
}

fn show_body(frame: &Frame) -> String {
    use elastin_protocol::Body;
    match &frame.body {
        None => "-".into(),
        Some(Body::Message { message, epoch }) => {
            format!(
                "message {} to {} {epoch:?}",
                show_call(message.header.call),
                message.target.key
            )
        }
        Some(Body::Passed { message, epoch }) => {
            format!(
                "passed {} to {} {epoch}",
                show_call(message.header.call),
                message.target.key
            )
        }
        Some(Body::Returned { message, place }) => {
            format!(
                "returned {} to {} {place:?}",
                show_call(message.header.call),
                message.target.key
            )
        }
        Some(other) => shortened(format!("{other:?}")),
    }
}

/// Long lines hide what matters.
fn shortened(mut text: String) -> String {
    const CHARS_MAX: usize = 240;
    text = text.replace("ActorId { tenant: TenantId(0), kind: ActorType(708684913), key: ", "{");
    if text.len() > CHARS_MAX {
        text.truncate(CHARS_MAX);
        text.push('…');
    }
    text
}

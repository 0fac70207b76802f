//! A small cluster model: servers with a capacity, actors with a demand, message delays and a provisioner. It runs the
//! managers unchanged.

mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elastin_control::{
    Capacity, Config, ControlMessage, Decision, DecisionId, Gem, GemCommand, GemEvent, Lem, LemCommand, LemEvent,
    Member, MoveId, NewActor, Outcome, Settings,
};
use elastin_policy::{Policy, compile};
use elastin_types::{
    ActorId, ActorStats, CallIn, CallOut, Caller, NodeId, PerResource, References, Schema, ServerState, ServerStats,
    Snapshot, Time, Usage,
};

pub(crate) use load::{Flow, Load, Nested};
use load::{Rates, rates};

/// CPU milliseconds per second of a server with one core.
pub(crate) const CORE: f64 = 1000.0;
/// Bytes per second that a server's network carries.
pub(crate) const NET: f64 = 1e8;
const MEMORY: f64 = 4e9;
const DELAY: Duration = Duration::from_millis(2);
const MOVE_TIME: Duration = Duration::from_millis(30);

/// The events of a recorded manager, in order.
pub(crate) type Recording = Vec<(Time, LemEvent)>;

#[derive(Clone, Debug)]
enum Happening {
    Period(NodeId),
    ToLem(NodeId, LemEvent),
    ToGem(NodeId, GemEvent),
    MoveDone {
        id: MoveId,
        actor: ActorId,
        from: NodeId,
        to: NodeId,
    },
    Joined {
        gem: NodeId,
        request: u64,
        count: u32,
    },
    Timer,
}

struct Host {
    lem: Lem,
    state: ServerState,
    capacity: f64,
    /// CPU use since the end of the last period.
    cpu: f64,
    net: f64,
    demand: f64,
    counted_since: Time,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    cpu: f64,
    net: f64,
    client_calls: BTreeMap<elastin_types::Method, f64>,
    calls_in: BTreeMap<(ActorId, elastin_types::Method), f64>,
    calls_out: BTreeMap<(ActorId, elastin_types::Method), f64>,
}

/// The properties of an actor that rules can see.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActorModel {
    pub(crate) references: Vec<References>,
    pub(crate) state_bytes: f64,
}

/// Whether to drop a message, by its number and content.
type Loses = dyn Fn(u64, &ControlMessage) -> bool;

/// The faults of a run.
pub(crate) struct Faults {
    /// Whether to drop a message, given the number of messages sent before it.
    pub(crate) loses: Box<Loses>,
    /// Whether to fail a move, given the number of moves tried before it.
    pub(crate) fails_move: Box<dyn Fn(u64) -> bool>,
    /// Whether the provisioner refuses all requests.
    pub(crate) no_servers: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loses: Box::new(|_, _| false),
            fails_move: Box::new(|_| false),
            no_servers: false,
        }
    }
}

pub(crate) struct Model {
    pub(crate) now: Time,
    pub(crate) schema: Schema,
    policy: Arc<Policy>,
    settings: Settings,
    hosts: BTreeMap<NodeId, Host>,
    gems: BTreeMap<NodeId, Gem>,
    pub(crate) place: BTreeMap<ActorId, NodeId>,
    /// Current rates, valid until the cluster or the load changes.
    rates: Option<Rates>,
    since: BTreeMap<ActorId, Time>,
    actors: BTreeMap<ActorId, ActorModel>,
    counted: BTreeMap<ActorId, Counted>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) load: Load,
    queue: BTreeMap<(Time, u64), Happening>,
    sequence: u64,
    sent: u64,
    size_changed: Option<Time>,
    reservations: BTreeMap<NodeId, Vec<ActorId>>,
    tried: u64,
    pub(crate) faults: Faults,
    provision_delay: Duration,
    /// Maximum relative error of a measurement.
    pub(crate) noise: f64,
    pub(crate) drawn: u64,
    next_node: u64,
    /// The latest record of each decision, and all records in order.
    pub(crate) decisions: BTreeMap<DecisionId, Decision>,
    pub(crate) records: Vec<(Time, Decision)>,
    pub(crate) moves: Vec<(Time, ActorId, NodeId, NodeId)>,
    pub(crate) measured: Vec<Capacity>,
    pub(crate) recording: Option<(NodeId, Recording)>,
}

impl Model {
    pub(crate) fn new(schema: Schema, policy: &str, settings: Settings) -> Self {
        let compiled = compile("test.epl", policy, &schema).unwrap_or_else(|errors| panic!("{errors:?}"));
        Self {
            now: Time::ZERO,
            schema,
            policy: Arc::new(compiled.policy),
            settings,
            hosts: BTreeMap::new(),
            gems: BTreeMap::new(),
            place: BTreeMap::new(),
            rates: None,
            since: BTreeMap::new(),
            actors: BTreeMap::new(),
            counted: BTreeMap::new(),
            flows: Vec::new(),
            load: Load::Open,
            queue: BTreeMap::new(),
            sequence: 0,
            sent: 0,
            size_changed: None,
            reservations: BTreeMap::new(),
            tried: 0,
            faults: Faults::default(),
            provision_delay: Duration::from_secs(5),
            noise: 0.0,
            drawn: 1,
            next_node: 1,
            decisions: BTreeMap::new(),
            records: Vec::new(),
            moves: Vec::new(),
            measured: Vec::new(),
            recording: None,
        }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }

    pub(crate) fn config(&self, node: NodeId) -> Config {
        Config {
            node,
            policy: self.policy(),
            settings: self.settings.clone(),
            seed: node.0,
        }
    }

    /// Replaces the settings before the run starts.
    pub(crate) fn restrict(&mut self, settings: Settings) {
        assert_eq!(self.now, Time::ZERO);
        self.settings = settings;
        let config = |node| Config {
            node,
            policy: Arc::clone(&self.policy),
            settings: self.settings.clone(),
            seed: node.0,
        };
        for (node, host) in &mut self.hosts {
            host.lem = Lem::new(config(*node));
        }
        for (node, gem) in &mut self.gems {
            *gem = Gem::new(config(*node));
        }
    }

    /// Adds a server with one core. Its periods are out of phase with those of the others.
    pub(crate) fn add_server(&mut self) -> NodeId {
        let node = NodeId(self.next_node);
        self.next_node += 1;
        let lem = Lem::new(self.config(node));
        let host = Host {
            lem,
            state: ServerState::Active,
            capacity: CORE,
            cpu: 0.0,
            net: 0.0,
            demand: 0.0,
            counted_since: self.now,
        };
        self.rates = None;
        self.hosts.insert(node, host);
        self.announce();
        // A first, short period makes the server known immediately.
        let phase = self.settings.period * u32::try_from(node.0 * 7 % 16).expect("small") / 64;
        self.schedule(DELAY * 2 + phase, Happening::Period(node));
        node
    }

    pub(crate) fn add_gem(&mut self, node: NodeId) {
        self.gems.insert(node, Gem::new(self.config(node)));
        self.announce();
    }

    pub(crate) fn add_actor(&mut self, actor: ActorId, node: NodeId, model: ActorModel) {
        self.rates = None;
        self.place.insert(actor.clone(), node);
        self.since.insert(actor.clone(), self.now);
        self.counted.insert(actor.clone(), Counted::default());
        self.actors.insert(actor, model);
    }

    /// Creates an actor on the server that a global manager places it on.
    pub(crate) fn create(&mut self, actor: ActorId, caller: Option<&ActorId>, model: ActorModel) -> NodeId {
        let caller_node = caller.and_then(|caller| self.place.get(caller).copied());
        let new = NewActor {
            actor: actor.clone(),
            caller: caller.cloned(),
            caller_node,
        };
        let now = self.now;
        let gem = self.gems.values_mut().next().expect("a global manager");
        let node = gem.place(now, &new).expect("a server").node;
        self.add_actor(actor, node, model);
        node
    }

    /// Kills a server. Its actors are called again immediately and reactivated on other servers.
    pub(crate) fn kill(&mut self, node: NodeId) {
        self.rates = None;
        self.hosts.remove(&node);
        let lost: Vec<ActorId> = self
            .place
            .iter()
            .filter(|(_, at)| **at == node)
            .map(|(actor, _)| actor.clone())
            .collect();
        self.announce();
        for actor in lost {
            let new = NewActor {
                actor: actor.clone(),
                caller: None,
                caller_node: None,
            };
            let asked = *self.hosts.keys().next().expect("a server is left");
            let placement = self.lem(asked).place(&new);
            let known = placement.map(|placement| placement.node);
            let node = known.filter(|node| self.hosts.contains_key(node)).unwrap_or(asked);
            let model = self.actors[&actor].clone();
            self.add_actor(actor, node, model);
        }
    }

    pub(crate) fn kill_gem(&mut self, node: NodeId) {
        self.gems.remove(&node);
        self.announce();
    }

    pub(crate) fn lem(&mut self, node: NodeId) -> &mut Lem {
        &mut self.hosts.get_mut(&node).expect("the server is there").lem
    }

    /// Drains a server, as an operator would.
    pub(crate) fn drain(&mut self, node: NodeId) {
        self.hosts.get_mut(&node).expect("the server is there").state = ServerState::Draining;
        self.announce();
    }

    /// Applies another policy, as an operator would.
    pub(crate) fn change_policy(&mut self, policy: Arc<Policy>) {
        self.policy = Arc::clone(&policy);
        for node in self.servers() {
            self.tell_lem(node, LemEvent::PolicyChanged(Arc::clone(&policy)));
        }
        for node in self.gems() {
            self.tell_gem(node, GemEvent::PolicyChanged(Arc::clone(&policy)));
        }
    }

    pub(crate) fn gems(&self) -> Vec<NodeId> {
        self.gems.keys().copied().collect()
    }

    pub(crate) fn servers(&self) -> Vec<NodeId> {
        self.hosts.keys().copied().collect()
    }

    pub(crate) fn on(&self, node: NodeId) -> BTreeSet<ActorId> {
        self.place
            .iter()
            .filter(|(_, at)| **at == node)
            .map(|(actor, _)| actor.clone())
            .collect()
    }

    /// The dedicated servers, as their managers last reported them.
    pub(crate) fn reserved(&self) -> Vec<(NodeId, ActorId)> {
        self.reservations
            .iter()
            .filter(|(node, _)| self.hosts.contains_key(node))
            .flat_map(|(node, actors)| actors.iter().map(|actor| (*node, actor.clone())))
            .collect()
    }

    pub(crate) fn served(&self) -> f64 {
        self.rates().served
    }

    /// The current CPU use of a server, in percent.
    pub(crate) fn cpu(&self, node: NodeId) -> f64 {
        100.0 * self.rates().server_cpu.get(&node).copied().unwrap_or(0.0) / self.hosts[&node].capacity
    }

    /// The decisions that are done or in progress, one line each, in order.
    pub(crate) fn story(&self) -> Vec<String> {
        let changed =
            |decision: &&Decision| matches!(decision.outcome, Outcome::Done | Outcome::Started | Outcome::Failed(_));
        let mut seen = BTreeSet::new();
        let order = self
            .records
            .iter()
            .map(|(_, decision)| decision.id)
            .filter(|id| seen.insert(*id));
        order
            .map(|id| &self.decisions[&id])
            .filter(changed)
            .map(|decision| decision.explain(&self.schema))
            .collect()
    }

    /// Runs for this many periods.
    pub(crate) fn run(&mut self, periods: u32) {
        self.run_for(self.settings.period * periods);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        // The test may have changed the load.
        self.rates = None;
        let end = self.now + span;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), happening) = entry.remove_entry();
            self.pass(at);
            self.happen(happening);
        }
        self.pass(end);
    }

    fn rates(&self) -> Rates {
        let capacity = self.hosts.iter().map(|(node, host)| (*node, host.capacity)).collect();
        rates(&self.load, &self.flows, &self.place, &capacity)
    }

    fn schedule(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), happening);
    }

    fn announce(&mut self) {
        let mut members: BTreeMap<NodeId, Member> = self
            .hosts
            .iter()
            .map(|(node, host)| {
                (
                    *node,
                    Member {
                        node: *node,
                        hosts: true,
                        state: host.state,
                        global: false,
                    },
                )
            })
            .collect();
        for node in self.gems.keys() {
            let member = Member {
                node: *node,
                hosts: false,
                state: ServerState::Active,
                global: true,
            };
            members.entry(*node).or_insert(member).global = true;
        }
        let members: Vec<Member> = members.into_values().collect();
        let hosts: Vec<NodeId> = self.hosts.keys().copied().collect();
        for node in hosts {
            self.schedule(DELAY, Happening::ToLem(node, LemEvent::Members(members.clone())));
        }
        let gems: Vec<NodeId> = self.gems.keys().copied().collect();
        for node in gems {
            self.schedule(DELAY, Happening::ToGem(node, GemEvent::Members(members.clone())));
        }
    }

    /// Accumulates usage until the given time.
    fn pass(&mut self, until: Time) {
        let seconds = until.since(self.now).as_secs_f64();
        self.now = until;
        if seconds == 0.0 {
            return;
        }
        let rates = self.rates.take().unwrap_or_else(|| self.rates());
        for (node, host) in &mut self.hosts {
            host.cpu += seconds * rates.server_cpu.get(node).copied().unwrap_or(0.0);
            host.demand += seconds * rates.server_demand.get(node).copied().unwrap_or(0.0);
        }
        for (actor, counted) in &mut self.counted {
            let net = seconds * rates.actor_net.get(actor).copied().unwrap_or(0.0);
            counted.cpu += seconds * rates.actor_cpu.get(actor).copied().unwrap_or(0.0);
            counted.net += net;
            if let Some(host) = self.hosts.get_mut(&self.place[actor]) {
                host.net += net;
            }
        }
        for ((actor, method), rate) in &rates.client_calls {
            let counted = self.counted.get_mut(actor).expect("flows name actors that exist");
            *counted.client_calls.entry(*method).or_default() += seconds * rate;
        }
        for ((from, to, method), rate) in &rates.calls {
            let caller = self.counted.get_mut(from).expect("flows name actors that exist");
            *caller.calls_out.entry((to.clone(), *method)).or_default() += seconds * rate;
            let callee = self.counted.get_mut(to).expect("flows name actors that exist");
            *callee.calls_in.entry((from.clone(), *method)).or_default() += seconds * rate;
        }
        self.rates = Some(rates);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Period(node) => self.end_period(node),
            Happening::ToLem(node, event) => self.tell_lem(node, event),
            Happening::ToGem(node, event) => self.tell_gem(node, event),
            Happening::MoveDone { id, actor, from, to } => {
                let possible = self.hosts.contains_key(&to) && self.place.get(&actor) == Some(&from);
                self.tried += 1;
                let possible = possible && !(self.faults.fails_move)(self.tried);
                let result = if possible {
                    Ok(())
                } else {
                    Err(format!("{to} did not take it"))
                };
                if possible {
                    self.moves.push((self.now, actor.clone(), from, to));
                    self.rates = None;
                    self.place.insert(actor.clone(), to);
                    self.since.insert(actor.clone(), self.now);
                    self.counted.insert(actor, Counted::default());
                }
                self.tell_lem(from, LemEvent::MoveEnded { id, result });
            }
            Happening::Joined { gem, request, count } => {
                let event = if self.faults.no_servers {
                    GemEvent::ProvisionFailed {
                        request,
                        reason: "the provisioner has no servers".into(),
                    }
                } else {
                    let nodes = (0..count).map(|_| self.add_server()).collect();
                    GemEvent::Provisioned { request, nodes }
                };
                self.tell_gem(gem, event);
            }
            Happening::Timer => {
                let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
                for node in nodes {
                    self.tell_lem(node, LemEvent::Tick);
                }
                let gems: Vec<NodeId> = self.gems.keys().copied().collect();
                for node in gems {
                    self.tell_gem(node, GemEvent::Tick);
                }
            }
        }
    }

    fn end_period(&mut self, node: NodeId) {
        if !self.hosts.contains_key(&node) {
            return;
        }
        let snapshot = self.snapshot(node);
        self.schedule(self.settings.period, Happening::Period(node));
        self.tell_lem(node, LemEvent::Period(snapshot));
    }

    fn snapshot(&mut self, node: NodeId) -> Snapshot {
        let period = self.now.since(self.hosts[&node].counted_since);
        let seconds = period.as_secs_f64();
        let noise = self.noise();
        let here = self.on(node);
        let actors: Vec<ActorStats> = here
            .iter()
            .map(|actor| self.stats(actor, node, seconds / noise))
            .collect();
        for actor in &here {
            self.counted.insert(actor.clone(), Counted::default());
        }
        let host = self.hosts.get_mut(&node).expect("checked by the caller");
        let usage = |used, capacity| Usage {
            used,
            capacity: Some(capacity),
        };
        let memory = actors.iter().map(|stats| stats.used.mem).sum();
        let server = ServerStats {
            node,
            state: host.state,
            usage: PerResource {
                cpu: usage((host.cpu / seconds * noise).min(host.capacity), host.capacity),
                mem: usage(memory, MEMORY),
                net: usage(host.net / seconds, NET),
            },
            cpu_demand: host.demand / seconds * noise,
            actors: actors.len() as u64,
        };
        (host.cpu, host.net, host.demand, host.counted_since) = (0.0, 0.0, 0.0, self.now);
        Snapshot {
            at: self.now,
            period,
            servers: vec![server],
            actors,
        }
    }

    /// A factor around one that distorts all values measured together.
    fn noise(&mut self) -> f64 {
        self.drawn = self
            .drawn
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.drawn >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + self.noise * (2.0 * unit - 1.0)
    }

    fn stats(&self, actor: &ActorId, node: NodeId, seconds: f64) -> ActorStats {
        let counted = &self.counted[actor];
        let model = &self.actors[actor];
        let count = |calls: f64| calls.round() as u64;
        let client = Caller::Client(NodeId(9_999));
        let from_clients = counted
            .client_calls
            .iter()
            .map(|(method, calls)| (client.clone(), *method, *calls, None));
        let from_actors = counted.calls_in.iter().map(|((caller, method), calls)| {
            (
                Caller::Actor(caller.clone()),
                *method,
                *calls,
                self.place.get(caller).copied(),
            )
        });
        ActorStats {
            functions: Vec::new(),
            actor: actor.clone(),
            node,
            since: self.since[actor],
            used: PerResource {
                cpu: counted.cpu / seconds,
                mem: model.state_bytes,
                net: counted.net / seconds,
            },
            calls_in: from_clients
                .chain(from_actors)
                .map(|(caller, method, calls, node)| CallIn {
                    caller,
                    method,
                    count: count(calls),
                    bytes: 0,
                    node,
                })
                .filter(|call| call.count > 0)
                .collect(),
            calls_out: counted
                .calls_out
                .iter()
                .map(|((callee, method), calls)| CallOut {
                    callee: callee.clone(),
                    method: *method,
                    count: count(*calls),
                    bytes: 0,
                    node: self.place.get(callee).copied(),
                })
                .filter(|call| call.count > 0)
                .collect(),
            references: model.references.clone(),
        }
    }

    fn tell_lem(&mut self, node: NodeId, event: LemEvent) {
        let now = self.now;
        if let Some((_, recording)) = self.recording.as_mut().filter(|(recorded, _)| *recorded == node) {
            recording.push((now, event.clone()));
        }
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let mut out = Vec::new();
        host.lem.handle(now, event, &mut out);
        let timer = host.lem.next_timer();
        self.set_timer(timer);
        for command in out {
            self.execute(node, command);
        }
    }

    fn tell_gem(&mut self, node: NodeId, event: GemEvent) {
        let now = self.now;
        let Some(gem) = self.gems.get_mut(&node) else { return };
        let mut out = Vec::new();
        gem.handle(now, event, &mut out);
        let timer = gem.next_timer();
        self.set_timer(timer);
        for command in out {
            match command {
                GemCommand::Send { to, message } => self.send(node, to, message),
                GemCommand::AddServers {
                    request,
                    count,
                    for_reserve,
                } => {
                    // The coordinator admits one size change per period, besides those for reserved actors.
                    let changed = self.size_changed.filter(|at| now.since(*at) < self.settings.period);
                    if !for_reserve && changed.is_some() {
                        let reason = "the size was just changed".to_owned();
                        let event = GemEvent::ProvisionFailed { request, reason };
                        self.schedule(DELAY, Happening::ToGem(node, event));
                        continue;
                    }
                    if !for_reserve {
                        self.size_changed = Some(now);
                    }
                    let joined = Happening::Joined {
                        gem: node,
                        request,
                        count,
                    };
                    self.schedule(self.provision_delay, joined);
                }
                GemCommand::RemoveServer { node } => {
                    if let Some(host) = self.hosts.get_mut(&node) {
                        host.state = ServerState::Draining;
                        self.announce();
                    }
                }
                GemCommand::Measured(capacity) => self.measured.push(capacity),
                GemCommand::Record(decision) => self.record(*decision),
            }
        }
    }

    fn set_timer(&mut self, timer: Option<Time>) {
        if let Some(at) = timer {
            let after = at.since(self.now).max(Duration::from_millis(1));
            let due = self.now + after;
            let waits = self
                .queue
                .range((due, 0)..=(due, u64::MAX))
                .any(|(_, happening)| matches!(happening, Happening::Timer));
            if !waits {
                self.schedule(after, Happening::Timer);
            }
        }
    }

    fn execute(&mut self, node: NodeId, command: LemCommand) {
        match command {
            LemCommand::Send { to, message } => self.send(node, to, message),
            LemCommand::SendToHost { actor, message } => {
                if let Some(to) = self.place.get(&actor).copied() {
                    self.send(node, to, message);
                }
            }
            LemCommand::Move { id, actor, to } => {
                self.schedule(
                    MOVE_TIME,
                    Happening::MoveDone {
                        id,
                        actor,
                        from: node,
                        to,
                    },
                );
            }
            LemCommand::Leave => {
                assert!(self.on(node).is_empty(), "{node} leaves with actors on it");
                self.hosts.remove(&node);
                self.announce();
            }
            LemCommand::Placed { .. } => {}
            LemCommand::Record(decision) => self.record(*decision),
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: ControlMessage) {
        self.sent += 1;
        // Encode and decode each message, as between processes.
        let bytes = postcard::to_stdvec(&message).expect("messages are plain data");
        let message: ControlMessage = postcard::from_bytes(&bytes).expect("messages are plain data");
        if let ControlMessage::Report(report) = &message {
            let actors = report.reservations.iter().map(|reservation| reservation.actor.clone());
            self.reservations.insert(from, actors.collect());
        }
        if (self.faults.loses)(self.sent, &message) {
            return;
        }
        let to_global = matches!(
            message,
            ControlMessage::Report(_)
                | ControlMessage::Place { .. }
                | ControlMessage::Adjustment(_)
                | ControlMessage::Vote(_)
        );
        let happening = if to_global {
            Happening::ToGem(to, GemEvent::Message { from, message })
        } else {
            Happening::ToLem(to, LemEvent::Message { from, message })
        };
        self.schedule(DELAY, happening);
    }

    fn record(&mut self, decision: Decision) {
        if let Some(before) = self.decisions.get(&decision.id) {
            assert!(
                !before.outcome.is_final(),
                "a decision ended twice: {before:?} then {decision:?}"
            );
        }
        self.records.push((self.now, decision.clone()));
        self.decisions.insert(decision.id, decision);
    }
}

//! The simulated world: processes, the network between them, the services they use, and the queue of events.
//!
//! Each part is an `impl World` in a file of its own: `process` (processes and their memberships), `driver` (commands
//! of a node), `runtime` (activations and turns), `saving`, `callers` (calls, moves, drains), `requests`, `faults`.

mod bugs;
mod callers;
mod driver;
mod faults;
mod process;
mod requests;
mod runtime;
mod saving;

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_protocol::membership::{MembershipEvent, RequestId, Role};
use elastin_protocol::store::{CoordinationRequest, MemoryTables, StateModel};
use elastin_protocol::{Event, Frame, MoveError, MoveId};
use elastin_types::{ActivationEpoch, ActorId, ActorType, CallId, Caller, NodeId, Time};

use crate::Options;
use crate::check::Checkers;
use crate::log::Log;
use crate::network::Network;
use crate::random::Random;
use crate::service::Service;

use process::{Joining, Process};
use requests::PendingRequest;
use saving::StoreOperation;

/// Identifies a process, even before it has joined and has a node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pid(u64);

/// A scheduled event.
#[derive(Debug)]
enum WorldEvent {
    /// A frame arrives.
    Frame {
        from: NodeId,
        to: NodeId,
        connection: u64,
        frame: Box<Frame>,
    },
    /// A client retries a request.
    Retry(NodeId, Box<PendingRequest>),
    /// An event of a node.
    Node(NodeId, Box<Event>),
    TurnEnds(NodeId, ActorId, ActivationEpoch),
    FreezeDeadline(NodeId, ActorId, ActivationEpoch),
    /// A request reaches the state store.
    StoreRequest(Box<StoreOperation>),
    /// The reply of the state store reaches the node.
    StoreReply(Box<StoreOperation>),
    Timer(NodeId),
    MembershipTimer(Pid),
    Membership(Pid, Box<MembershipEvent>),
    /// A request to this leader reaches the coordination service.
    Request(Pid, RequestId, u64, Box<CoordinationRequest>),
    /// A watch has pending changes.
    WatchDue(Pid),
    /// A lease may have expired.
    Expire,
    /// A process starts.
    Begin(Role, Option<String>),
    /// A paused process resumes.
    Wake(Pid),
    /// A process can reach the coordination service again.
    Reach(Pid),
    /// The coordination service resumes.
    ServiceBack,
    /// Ends all cuts of the network.
    Heal,
}

/// A point at which to crash a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrashPoint {
    /// The node.
    pub(crate) node: NodeId,
    /// The number of its commands before the crash, counted from when the point was set.
    pub(crate) after_commands: u64,
}

/// A requested move.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub(crate) actor: ActorId,
    pub(crate) source: NodeId,
    pub(crate) to: NodeId,
    pub(crate) began: Time,
    pub(crate) ended: Option<(Time, Result<ActivationEpoch, MoveError>)>,
}

/// The simulated world.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) options: Options,
    random: Random,
    network: Network,
    service: Service,
    store: StateModel<MemoryTables>,
    queue: BTreeMap<(Time, u64), WorldEvent>,
    queued: u64,
    processes: BTreeMap<NodeId, Process>,
    joining: BTreeMap<Pid, Joining>,
    /// The node ids of processes that have joined.
    nodes: BTreeMap<Pid, NodeId>,
    /// Deferred events of paused processes.
    paused: BTreeMap<Pid, Vec<WorldEvent>>,
    /// Processes that can't reach the coordination service, and until when.
    cut_off: BTreeMap<Pid, Time>,
    processes_begun: u64,
    /// When to expire leases of the coordination service next.
    expire_at: Option<Time>,
    next_call: BTreeMap<NodeId, u64>,
    /// Requests with a call in flight, by that call.
    pending_requests: BTreeMap<CallId, PendingRequest>,
    pair_numbers: BTreeMap<(Caller, u64, ActorId), u64>,
    incarnations: u64,
    /// The node of the last activation of each actor.
    last_host: BTreeMap<ActorId, NodeId>,
    next_move: u64,
    pub(crate) moves: BTreeMap<MoveId, Moving>,
    pub(crate) checkers: Checkers,
    pub(crate) log: Log,
    pub(crate) events: u64,
    pub(crate) crash_point: Option<CrashPoint>,
    /// The number of executed commands of each node.
    pub(crate) commands: BTreeMap<NodeId, u64>,
    /// When each call ended.
    pub(crate) ended: BTreeMap<CallId, Time>,
    /// The times of the last freeze and the last start of a turn.
    pub(crate) last_freeze: Time,
    pub(crate) last_turn: Time,
    /// No faults are injected: the world is starting, or is healed.
    calm: bool,
}

/// The actor with this number.
pub(crate) fn actor(number: u64) -> ActorId {
    ActorId::new(ActorType::of("Simulated"), number)
}

impl World {
    /// Creates a world in which all processes have joined and know each other.
    ///
    /// # Panics
    /// If they don't join within a second although there are no faults.
    pub(crate) fn new(seed: u64, options: &Options, keep_lines: bool) -> Self {
        let mut random = Random::new(seed);
        let network = Network::new(random.fork(), options);
        let mut world = Self {
            now: Time(1_000_000),
            options: options.clone(),
            random,
            network,
            service: Service::default(),
            store: StateModel::default(),
            queue: BTreeMap::new(),
            queued: 0,
            processes: BTreeMap::new(),
            joining: BTreeMap::new(),
            nodes: BTreeMap::new(),
            paused: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            processes_begun: 0,
            expire_at: None,
            next_call: BTreeMap::new(),
            pending_requests: BTreeMap::new(),
            pair_numbers: BTreeMap::new(),
            incarnations: 0,
            last_host: BTreeMap::new(),
            next_move: 0,
            moves: BTreeMap::new(),
            checkers: Checkers::default(),
            log: Log::new(keep_lines),
            events: 0,
            crash_point: None,
            commands: BTreeMap::new(),
            ended: BTreeMap::new(),
            last_freeze: Time::ZERO,
            last_turn: Time::ZERO,
            calm: true,
        };
        world.checkers.outcome.nothing_is_lost = !options.may_lose();
        if options.supervisor {
            world.begin(Role::Supervisor, None);
        }
        for _ in 0..options.servers {
            world.begin(Role::Server, None);
        }
        for _ in 0..options.clients {
            world.begin(Role::Client, None);
        }
        let (end, step) = (world.now + Duration::from_secs(1), Duration::from_millis(10));
        while !world.is_agreed() && world.checkers.violations.is_empty() {
            assert!(
                world.now < end,
                "the processes did not join: {:?}",
                world.joining.keys()
            );
            let next = world.now + step;
            world.run_until(next);
        }
        world.calm = false;
        world
    }

    fn at(&mut self, after: Duration, event: WorldEvent) {
        self.at_time(self.now + after, event);
    }

    fn at_time(&mut self, at: Time, event: WorldEvent) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), event);
    }

    /// A random duration, or zero in an exact world.
    fn up_to(&mut self, most: Duration) -> Duration {
        match self.options.exact {
            true => Duration::ZERO,
            false => self.random.between(Duration::ZERO, most),
        }
    }

    /// Advances time to `end`, unless a violation is found.
    pub(crate) fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end || !self.checkers.violations.is_empty() {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.dispatch(event);
        }
        self.now = self.now.max(end);
    }

    /// The process in which an event happens, if any.
    fn process_of(&self, event: &WorldEvent) -> Option<Pid> {
        let node = match event {
            WorldEvent::Frame { to, .. } => to,
            WorldEvent::Node(node, _)
            | WorldEvent::Retry(node, _)
            | WorldEvent::TurnEnds(node, ..)
            | WorldEvent::FreezeDeadline(node, ..)
            | WorldEvent::Timer(node) => node,
            WorldEvent::StoreReply(operation) => &operation.node,
            WorldEvent::MembershipTimer(pid) | WorldEvent::Membership(pid, _) => return Some(*pid),
            _ => return None,
        };
        self.processes.get(node).map(|process| process.pid)
    }

    fn dispatch(&mut self, event: WorldEvent) {
        if !self.paused.is_empty()
            && let Some(pid) = self.process_of(&event)
            && let Some(waiting) = self.paused.get_mut(&pid)
        {
            waiting.push(event);
            return;
        }
        match event {
            WorldEvent::Frame {
                from,
                to,
                connection,
                frame,
            } => {
                if self.network.arrives(from, to, connection) {
                    self.handle(to, Event::Frame { from, frame: *frame });
                }
            }
            WorldEvent::Node(node, event) => self.handle(node, *event),
            WorldEvent::Retry(client, pending) => self.call_for_request(client, *pending),
            WorldEvent::TurnEnds(node, actor, epoch) => self.turn_ends(node, &actor, epoch),
            WorldEvent::FreezeDeadline(node, actor, epoch) => self.freeze_deadline(node, actor, epoch),
            WorldEvent::StoreRequest(operation) => self.store_handles(*operation),
            WorldEvent::StoreReply(operation) => self.store_replied(*operation),
            WorldEvent::Timer(node) => self.timer(node),
            WorldEvent::MembershipTimer(pid) => self.membership_timer(pid),
            WorldEvent::Membership(pid, event) => self.membership(pid, *event),
            WorldEvent::Request(pid, id, leader, request) => self.service_handles(pid, id, leader, *request),
            WorldEvent::WatchDue(pid) => self.watch_due(pid),
            WorldEvent::Expire => self.expire(),
            WorldEvent::Begin(role, name) => self.begin(role, name),
            WorldEvent::Wake(pid) => self.wake(pid),
            WorldEvent::Reach(pid) => self.reach(pid),
            WorldEvent::ServiceBack => self.service_back(),
            WorldEvent::Heal => self.network.heal(),
        }
    }

    /// The sizes of the tables of all nodes.
    pub(crate) fn table_sizes(&self) -> Vec<(NodeId, elastin_protocol::TableSizes)> {
        self.processes
            .iter()
            .map(|(node, process)| (*node, process.node.table_sizes()))
            .collect()
    }
}

//! The simulated world: processes, the network between them, the services they use, and what happens when.
//!
//! The parts, each an `impl World` in a file of its own: `process` (lives of processes and their memberships), `driver`
//! (what a node wants done), `runtime` (activations and turns), `saving`, `callers` (calls, moves, drains), `requests`, `faults`.

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
use requests::Asked;
use saving::Stored;

/// Names a process, also before it has joined and is a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pid(u64);

/// Something that will happen.
#[derive(Debug)]
enum Happening {
    /// A frame arrives.
    Frame {
        from: NodeId,
        to: NodeId,
        connection: u64,
        frame: Box<Frame>,
    },
    /// A client calls again for a request.
    Again(NodeId, Box<Asked>),
    /// Something happens to a node.
    Node(NodeId, Box<Event>),
    TurnEnds(NodeId, ActorId, ActivationEpoch),
    FreezeDeadline(NodeId, ActorId, ActivationEpoch),
    /// A request gets to the state store.
    Store(Box<Stored>),
    /// The state store's answer gets to the node.
    Stored(Box<Stored>),
    Timer(NodeId),
    MembershipTimer(Pid),
    Membership(Pid, Box<MembershipEvent>),
    /// A request gets to the coordination service, meant for this leader.
    Request(Pid, RequestId, u64, Box<CoordinationRequest>),
    /// A watch has news.
    WatchDue(Pid),
    /// The time of a lease may be over.
    Expire,
    /// A process begins.
    Begin(Role, Option<String>),
    /// A process that stood still goes on.
    Wake(Pid),
    /// A process reaches the coordination service again.
    Reach(Pid),
    /// The coordination service is back.
    ServiceBack,
    /// A direction that was cut is whole again.
    Heal,
}

/// Where a run shall crash a node: after this many of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrashPoint {
    /// The node.
    pub(crate) node: NodeId,
    /// After how many of its commands, counted from when the point was set.
    pub(crate) after_commands: u64,
}

/// A move that was asked for.
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
    queue: BTreeMap<(Time, u64), Happening>,
    queued: u64,
    processes: BTreeMap<NodeId, Process>,
    joining: BTreeMap<Pid, Joining>,
    /// The nodes that processes have become.
    nodes: BTreeMap<Pid, NodeId>,
    /// What waits for processes that stand still.
    paused: BTreeMap<Pid, Vec<Happening>>,
    /// Processes that can't reach the coordination service.
    cut_off: BTreeMap<Pid, Time>,
    processes_begun: u64,
    /// When the coordination service is looked at next for leases that end.
    expire_at: Option<Time>,
    next_call: BTreeMap<NodeId, u64>,
    /// Calls of requests that have not ended.
    asked: BTreeMap<CallId, Asked>,
    pair_numbers: BTreeMap<(Caller, u64, ActorId), u64>,
    lives: u64,
    /// Where each actor was last activated.
    last_host: BTreeMap<ActorId, NodeId>,
    next_move: u64,
    pub(crate) moves: BTreeMap<MoveId, Moving>,
    pub(crate) checkers: Checkers,
    pub(crate) log: Log,
    pub(crate) events: u64,
    pub(crate) crash_point: Option<CrashPoint>,
    /// Commands carried out per node.
    pub(crate) commands: BTreeMap<NodeId, u64>,
    /// When each call ended.
    pub(crate) ended: BTreeMap<CallId, Time>,
    /// When an actor was last frozen, and when a turn last started.
    pub(crate) last_freeze: Time,
    pub(crate) last_turn: Time,
    /// Nothing goes wrong: the world has not begun, or is healed.
    calm: bool,
}

/// The actor with this number.
pub(crate) fn actor(number: u64) -> ActorId {
    ActorId::new(ActorType::of("Simulated"), number)
}

impl World {
    /// A world whose processes have all joined and know each other.
    ///
    /// # Panics
    /// If they don't within a second, without any fault.
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
            asked: BTreeMap::new(),
            pair_numbers: BTreeMap::new(),
            lives: 0,
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

    fn at(&mut self, after: Duration, happening: Happening) {
        self.at_time(self.now + after, happening);
    }

    fn at_time(&mut self, at: Time, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), happening);
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

    /// The process that something happens in, if it is inside of one.
    fn process_of(&self, happening: &Happening) -> Option<Pid> {
        let node = match happening {
            Happening::Frame { to, .. } => to,
            Happening::Node(node, _)
            | Happening::Again(node, _)
            | Happening::TurnEnds(node, ..)
            | Happening::FreezeDeadline(node, ..)
            | Happening::Timer(node) => node,
            Happening::Stored(stored) => &stored.node,
            Happening::MembershipTimer(pid) | Happening::Membership(pid, _) => return Some(*pid),
            _ => return None,
        };
        self.processes.get(node).map(|process| process.pid)
    }

    fn happen(&mut self, happening: Happening) {
        if !self.paused.is_empty()
            && let Some(pid) = self.process_of(&happening)
            && let Some(waiting) = self.paused.get_mut(&pid)
        {
            waiting.push(happening);
            return;
        }
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
            Happening::Again(client, asked) => self.ask(client, *asked),
            Happening::TurnEnds(node, actor, epoch) => self.turn_ends(node, &actor, epoch),
            Happening::FreezeDeadline(node, actor, epoch) => self.freeze_deadline(node, actor, epoch),
            Happening::Store(request) => self.store_handles(*request),
            Happening::Stored(answer) => self.stored(*answer),
            Happening::Timer(node) => self.timer(node),
            Happening::MembershipTimer(pid) => self.membership_timer(pid),
            Happening::Membership(pid, event) => self.membership(pid, *event),
            Happening::Request(pid, request, leader, what) => self.service_handles(pid, request, leader, *what),
            Happening::WatchDue(pid) => self.watch_due(pid),
            Happening::Expire => self.expire(),
            Happening::Begin(role, name) => self.begin(role, name),
            Happening::Wake(pid) => self.wake(pid),
            Happening::Reach(pid) => self.reach(pid),
            Happening::ServiceBack => self.service_back(),
            Happening::Heal => self.network.heal(),
        }
    }

    /// How full the tables of all nodes are.
    pub(crate) fn table_sizes(&self) -> Vec<(NodeId, elastin_protocol::TableSizes)> {
        self.processes
            .iter()
            .map(|(node, process)| (*node, process.node.table_sizes()))
            .collect()
    }
}

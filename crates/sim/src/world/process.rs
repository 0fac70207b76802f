//! Processes: joining, the commands of their memberships, and their end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use elastin_protocol::membership::{
    MemberRecord, Membership, MembershipCommand, MembershipEnd, MembershipEvent, RequestId, Role,
};
use elastin_protocol::store::CoordinationRequest;
use elastin_protocol::{Event, Limits, Node, NodeConfig, View};
use elastin_types::{ActorId, NodeId, Time};

use super::{Pid, World, WorldEvent};
use crate::clock::Clock;
use crate::host::Host;
use crate::service::{interrupted, unreachable};

/// The longest delay of a request to the coordination service, and of its reply.
const REQUEST_MOST: Duration = Duration::from_millis(3);
/// The longest delay of a watch event.
const WATCH_MOST: Duration = Duration::from_millis(20);
/// The timeout of a lost reply, and the delay of a very late one.
const LATE_MOST: Duration = Duration::from_millis(600);
/// The longest delay before a process that has ended is replaced.
const REPLACE_MOST: Duration = Duration::from_millis(100);

/// A process that has not joined yet.
#[derive(Debug)]
pub(super) struct Joining {
    membership: Membership,
    role: Role,
    name: String,
    clock: Clock,
    timer: Option<Time>,
}

/// A process that has joined.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) membership: Membership,
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) node: Node,
    pub(super) host: Host,
    /// The times of the node's timer and of the membership's.
    pub(super) timer: Option<Time>,
    pub(super) membership_timer: Option<Time>,
    /// Events that precede all others.
    pub(super) urgent: VecDeque<Event>,
    /// It drains: it accepts no actors, and moves its own away.
    pub(super) retiring: bool,
}

impl World {
    /// Starts a process, which joins the cluster.
    pub(crate) fn begin(&mut self, role: Role, name: Option<String>) {
        self.processes_begun += 1;
        let pid = Pid(self.processes_begun);
        let name = name.unwrap_or_else(|| format!("p{}", pid.0));
        let clock = match self.options.exact {
            true => Clock::exact(self.now),
            false => Clock::drifting(self.now, &mut self.random),
        };
        self.log.note_world(self.now, || format!("{name} begins as {role:?}"));
        let mut commands = Vec::new();
        let record = MemberRecord::new(&name, role, None);
        #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut membership = Membership::join(clock.local(self.now), record, self.options.lease_ttl, &mut commands);
        #[cfg(feature = "planted-bugs")]
        if let Some(bug) = self.options.bug {
            membership.plant(bug);
        }
        let timer = None;
        let joining = Joining {
            membership,
            role,
            name,
            clock,
            timer,
        };
        self.joining.insert(pid, joining);
        self.execute_membership(pid, commands);
    }

    fn membership_of(&mut self, pid: Pid) -> Option<(&mut Membership, Clock, &mut Option<Time>)> {
        if let Some(node) = self.nodes.get(&pid) {
            let process = self.processes.get_mut(node)?;
            return Some((&mut process.membership, process.clock, &mut process.membership_timer));
        }
        let joining = self.joining.get_mut(&pid)?;
        Some((&mut joining.membership, joining.clock, &mut joining.timer))
    }

    /// Passes an event to the membership of a process.
    pub(super) fn membership(&mut self, pid: Pid, event: MembershipEvent) {
        let now = self.now;
        let Some((membership, clock, _)) = self.membership_of(pid) else {
            return;
        };
        let mut commands = Vec::new();
        membership.handle(clock.local(now), event, &mut commands);
        self.events += 1;
        self.execute_membership(pid, commands);
    }

    fn execute_membership(&mut self, pid: Pid, commands: Vec<MembershipCommand>) {
        for command in commands {
            match command {
                MembershipCommand::Submit { request, what } => self.submit(pid, request, what),
                MembershipCommand::Watch { watch, from } => {
                    self.service.watch(pid, watch, from);
                    self.notify_watches();
                }
                MembershipCommand::Joined { node } => self.joined(pid, node),
                MembershipCommand::Roster(_) | MembershipCommand::Fence => {}
                MembershipCommand::View(view) => self.view(pid, view),
                MembershipCommand::MayActUntil(until) => self.may_act_until(pid, until),
                MembershipCommand::Ended(reason) => self.ended(pid, &reason),
            }
        }
        self.set_membership_timer(pid);
    }

    pub(super) fn set_membership_timer(&mut self, pid: Pid) {
        let Some((membership, clock, timer)) = self.membership_of(pid) else {
            return;
        };
        let Some(wanted) = membership.next_timer().map(|at| clock.real(at)) else {
            return;
        };
        if timer.is_none_or(|at| at > wanted) {
            *timer = Some(wanted);
            self.at_time(wanted, WorldEvent::MembershipTimer(pid));
        }
    }

    pub(super) fn membership_timer(&mut self, pid: Pid) {
        let now = self.now;
        if let Some((_, _, timer)) = self.membership_of(pid)
            && timer.is_some_and(|at| at <= now)
        {
            *timer = None;
            self.membership(pid, MembershipEvent::Timer);
        }
    }

    // ---- Coordination service

    fn submit(&mut self, pid: Pid, id: RequestId, request: CoordinationRequest) {
        let mut after = self.up_to(REQUEST_MOST);
        if !self.calm && self.random.below(200) < self.options.faults.lost_answers {
            self.log.count("request late");
            after = self.random.between(Duration::ZERO, LATE_MOST);
        }
        let leader = self.service.leader();
        self.at(after, WorldEvent::Request(pid, id, leader, Box::new(request)));
    }

    /// Handles a request at the service. The request or its reply may be lost.
    pub(super) fn service_handles(&mut self, pid: Pid, id: RequestId, leader: u64, request: CoordinationRequest) {
        let faults = self.options.faults;
        let is_lost = !self.calm && faults.lost_answers > 0 && self.random.chance(faults.lost_answers);
        let mut after = self.up_to(REQUEST_MOST);
        let result = if self.cut_off.contains_key(&pid) {
            Err(unreachable("the network is cut"))
        } else if is_lost {
            after = self.random.between(Duration::ZERO, LATE_MOST);
            match self.random.below(3) {
                0 => {
                    self.log.count("request lost");
                    Err(interrupted("the request was lost"))
                }
                1 => {
                    self.log.count("answer lost");
                    let _ = self.service.handle(self.now, leader, request);
                    Err(interrupted("the reply was lost"))
                }
                _ => {
                    self.log.count("answer late");
                    self.service.handle(self.now, leader, request)
                }
            }
        } else {
            self.service.handle(self.now, leader, request)
        };
        let event = MembershipEvent::Answered { request: id, result };
        self.at(after, WorldEvent::Membership(pid, Box::new(event)));
        self.notify_watches();
    }

    /// Schedules notifications of watches and the next lease expiry after a possible change.
    pub(super) fn notify_watches(&mut self) {
        for pid in self.service.watches_due() {
            let after = self.up_to(WATCH_MOST);
            self.at(after, WorldEvent::WatchDue(pid));
        }
        if let Some(end) = self.service.next_end()
            && self.expire_at.is_none_or(|at| end < at)
        {
            self.expire_at = Some(end);
            self.at_time(end, WorldEvent::Expire);
        }
    }

    pub(super) fn expire(&mut self) {
        if self.expire_at.is_some_and(|at| at <= self.now) {
            self.expire_at = None;
        }
        self.service.expire(self.now);
        self.notify_watches();
    }

    pub(super) fn watch_due(&mut self, pid: Pid) {
        if self.cut_off.contains_key(&pid) {
            // It gets all changes once it can reach the service again.
            return;
        }
        if let Some((watch, batch)) = self.service.batch(pid) {
            if batch.is_err() {
                self.log.count("watch restarted");
            }
            let event = MembershipEvent::Watched { watch, batch };
            self.dispatch(WorldEvent::Membership(pid, Box::new(event)));
        }
        self.notify_watches();
    }

    // ---- Membership commands

    fn joined(&mut self, pid: Pid, id: NodeId) {
        let joining = self.joining.remove(&pid).expect("it was joining");
        let limits = self.limits();
        let hosts = joining.role == Role::Server;
        #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a bug changes it"))]
        let mut node = Node::new(NodeConfig { me: id, hosts, limits });
        #[cfg(feature = "planted-bugs")]
        if let Some(bug) = self.options.bug {
            node.plant(bug);
        }
        self.log
            .note_world(self.now, || format!("{} joins as {id}", joining.name));
        let process = Process {
            pid,
            membership: joining.membership,
            role: joining.role,
            name: joining.name,
            clock: joining.clock,
            node,
            host: Host::default(),
            timer: None,
            membership_timer: joining.timer,
            urgent: VecDeque::new(),
            retiring: false,
        };
        self.processes.insert(id, process);
        self.nodes.insert(pid, id);
    }

    fn view(&mut self, pid: Pid, view: View) {
        let now = self.now;
        for node in self.processes.keys() {
            if view.is_dead(*node) {
                self.checkers.taken_over(*node, now);
            }
        }
        if let Some(node) = self.nodes.get(&pid).copied() {
            self.handle(node, Event::View(view));
        }
    }

    fn may_act_until(&mut self, pid: Pid, until: Time) {
        let Some(node) = self.nodes.get(&pid).copied() else {
            return;
        };
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&node) {
            let local = process.clock.local(now);
            let was_fenced = local >= process.host.may_act_until;
            process.host.may_act_until = until;
            if was_fenced && local < until && process.node.view().is_some() {
                self.log.count("node unfenced");
            }
        }
        self.handle(node, Event::MayActUntil(until));
        let Some(process) = self.processes.get(&node) else {
            return;
        };
        let actors: Vec<ActorId> = process.host.activations.keys().cloned().collect();
        for actor in actors {
            self.run_turns(node, &actor);
        }
    }

    fn ended(&mut self, pid: Pid, reason: &MembershipEnd) {
        self.service.forget(pid);
        let (role, name) = match self.nodes.get(&pid).copied() {
            Some(node) => {
                let Some(process) = self.processes.remove(&node) else {
                    return;
                };
                self.log.count(match reason {
                    MembershipEnd::Left => "server left",
                    _ => "node evicted",
                });
                self.log.note_world(self.now, || format!("{node} ends: {reason}"));
                self.checkers.node_stops(node);
                (process.role, process.name)
            }
            None => {
                let Some(joining) = self.joining.remove(&pid) else {
                    return;
                };
                self.log.count("join failed");
                (joining.role, joining.name)
            }
        };
        if *reason != MembershipEnd::Left {
            self.replace(role, name);
        }
    }

    /// Starts a replacement of a process that has ended, possibly under its name.
    pub(super) fn replace(&mut self, role: Role, name: String) {
        let after = self.up_to(REPLACE_MOST);
        let name = self.random.chance(50).then_some(name);
        self.at(after, WorldEvent::Begin(role, name));
    }

    // ---- Queries

    /// Whether all processes have joined and share a view that contains all of them.
    pub(crate) fn is_agreed(&self) -> bool {
        let all: Vec<NodeId> = self.processes.keys().copied().collect();
        let knows_all = |node: &Node| {
            let knows = |view: &View| view.members.keys().copied().eq(all.iter().copied());
            node.view().is_some_and(knows)
        };
        self.joining.is_empty() && self.processes.values().all(|process| knows_all(&process.node))
    }

    /// Servers that accept actors.
    pub(crate) fn servers(&self) -> Vec<NodeId> {
        let takes = |process: &Process| process.role == Role::Server && !process.retiring;
        let all = self.processes.iter().filter(|(_, process)| takes(process));
        all.map(|(node, _)| *node).collect()
    }

    /// Clients that have a view and are not paused.
    pub(crate) fn clients(&self) -> Vec<NodeId> {
        let is_client = |process: &Process| {
            let is_ready = process.node.view().is_some() && !self.paused.contains_key(&process.pid);
            process.role == Role::Client && is_ready
        };
        let all = self.processes.iter().filter(|(_, process)| is_client(process));
        all.map(|(node, _)| *node).collect()
    }

    /// The number of activations of a node.
    pub(crate) fn activations_of(&self, node: NodeId) -> usize {
        let process = self.processes.get(&node);
        process.map_or(0, |process| process.host.activations.len())
    }

    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        self.processes.contains_key(&node)
    }

    /// The bounds of the nodes' tables.
    pub(crate) fn limits(&self) -> Limits {
        limits(self.options.tight)
    }

    /// The roles of all nodes, for messages.
    pub(crate) fn roles(&self) -> BTreeMap<NodeId, Role> {
        self.processes
            .iter()
            .map(|(node, process)| (*node, process.role))
            .collect()
    }
}

/// Limits that suit a world of some seconds; in a tight world, bounds that are reached.
fn limits(tight: bool) -> Limits {
    let mut limits = Limits {
        chunk_bytes: 8,
        burst_bytes: 16,
        move_deadline: Duration::from_millis(500),
        freeze_deadline: Duration::from_millis(200),
        retransmit_after: Duration::from_millis(200),
        tombstone_for: Duration::from_millis(500),
        ..Limits::default()
    };
    if tight {
        limits.held_per_actor = 4;
        limits.unacknowledged_per_peer = 40;
        limits.routes = 8;
        limits.moves_out = 2;
        limits.moves_in = 1;
        limits.requests_per_actor = 2;
    }
    limits
}

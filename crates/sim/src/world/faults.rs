//! Faults and their repair.

use std::time::Duration;

use elastin_protocol::Event;
use elastin_protocol::membership::MembershipEvent;
use elastin_types::NodeId;

use super::{Pid, World, WorldEvent};

/// The longest delay until a node notices a broken connection, and until it has a new one.
const LINK_MOST: Duration = Duration::from_millis(50);
/// The shortest and the longest duration of a cut, a partition, or a disconnection from the coordination service.
const CUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(600));

impl World {
    /// Crashes a process. Another one replaces it.
    pub(crate) fn crash(&mut self, node: NodeId) {
        let Some(process) = self.processes.remove(&node) else {
            return;
        };
        self.log.note_world(self.now, || format!("{node} CRASHES"));
        self.log.count("crash");
        self.checkers.outcome.nothing_is_lost = false;
        self.service.forget(process.pid);
        self.paused.remove(&process.pid);
        self.checkers.node_stops(node);
        if !process.retiring {
            self.replace(process.role, process.name);
        }
    }

    fn any_process(&mut self) -> Option<(NodeId, Pid)> {
        let all: Vec<(NodeId, Pid)> = self
            .processes
            .iter()
            .map(|(node, process)| (*node, process.pid))
            .collect();
        self.random.pick(&all).copied()
    }

    fn any_pair(&mut self) -> Option<(NodeId, NodeId)> {
        let (one, _) = self.any_process()?;
        let (other, _) = self.any_process()?;
        (one != other).then_some((one, other))
    }

    /// Pauses a process, possibly for so long that it is declared dead.
    pub(crate) fn pause(&mut self) {
        let Some((node, pid)) = self.any_process() else { return };
        if self.paused.contains_key(&pid) {
            return;
        }
        let ttl = self.options.lease_ttl;
        let time = match self.random.below(3) {
            0 => self.random.between(Duration::from_millis(1), ttl / 2),
            1 => self.random.between(ttl / 2, ttl),
            _ => {
                self.log.count("pause longer than a lease");
                self.random.between(ttl, ttl * 5)
            }
        };
        self.log.count("pause");
        self.log.note_world(self.now, || format!("{node} PAUSES for {time:?}"));
        self.paused.insert(pid, Vec::new());
        self.at(time, WorldEvent::Wake(pid));
    }

    /// Resumes a process: everything that arrived meanwhile is delivered at once, and its timers last, as the worst
    /// possible scheduler would.
    pub(super) fn wake(&mut self, pid: Pid) {
        let Some(waiting) = self.paused.remove(&pid) else {
            return;
        };
        self.log.note_world(self.now, || format!("{pid:?} resumes"));
        let is_timer = |event: &WorldEvent| matches!(event, WorldEvent::Timer(_) | WorldEvent::MembershipTimer(_));
        let (timers, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_timer);
        for event in others.into_iter().chain(timers) {
            self.dispatch(event);
        }
    }

    /// Lets a process's clock jump ahead.
    pub(crate) fn jump(&mut self) {
        let Some((node, pid)) = self.any_process() else { return };
        let by = self
            .random
            .between(Duration::from_millis(1), self.options.lease_ttl * 3);
        self.log.count("clock jump");
        self.log
            .note_world(self.now, || format!("the clock of {node} JUMPS by {by:?}"));
        let process = self.processes.get_mut(&node).expect("it was found");
        process.clock.jump(self.now, by);
        process.timer = None;
        process.membership_timer = None;
        self.set_timer(node);
        self.set_membership_timer(pid);
    }

    /// Breaks a connection: its frames are lost, both ends are notified, and later there is a new one.
    pub(crate) fn break_link(&mut self) {
        let Some((one, other)) = self.any_pair() else { return };
        self.log.count("link break");
        self.log
            .note_world(self.now, || format!("the connection of {one} and {other} breaks"));
        for (from, to) in [(one, other), (other, one)] {
            self.network.break_link(from, to);
            let down = self.random.between(Duration::ZERO, LINK_MOST);
            let up = down + self.random.between(Duration::ZERO, LINK_MOST);
            self.at(down, WorldEvent::Node(from, Box::new(Event::LinkDown { peer: to })));
            self.at(up, WorldEvent::Node(from, Box::new(Event::LinkUp { peer: to })));
        }
    }

    /// Drops everything in one direction for a while.
    pub(crate) fn cut(&mut self) {
        let Some((from, to)) = self.any_pair() else { return };
        self.log.count("cut");
        self.log
            .note_world(self.now, || format!("nothing gets from {from} to {to}"));
        self.network.cut(from, to);
        self.heal_later();
    }

    /// Partitions a node from half of the others for a while.
    pub(crate) fn partition(&mut self) {
        let Some((one, _)) = self.any_process() else { return };
        let others: Vec<NodeId> = self.processes.keys().copied().filter(|node| *node != one).collect();
        for other in others {
            if self.random.chance(50) {
                self.network.cut(one, other);
                self.network.cut(other, one);
            }
        }
        self.log.count("partition");
        self.log
            .note_world(self.now, || format!("{one} is cut off from half of the others"));
        self.heal_later();
    }

    fn heal_later(&mut self) {
        let after = self.random.between(CUT.0, CUT.1);
        self.at(after, WorldEvent::Heal);
    }

    /// Disconnects a process from the coordination service for a while.
    pub(crate) fn cut_off(&mut self) {
        let Some((node, pid)) = self.any_process() else { return };
        let after = self.random.between(CUT.0, CUT.1.max(self.options.lease_ttl * 3));
        self.log.count("cut off from coordination");
        self.log
            .note_world(self.now, || format!("{node} can't reach coordination for {after:?}"));
        let until = self.cut_off.entry(pid).or_insert(self.now);
        *until = (*until).max(self.now + after);
        self.at(after, WorldEvent::Reach(pid));
    }

    pub(super) fn reach(&mut self, pid: Pid) {
        if self.cut_off.get(&pid).is_some_and(|until| *until <= self.now) {
            self.cut_off.remove(&pid);
            // Deliver the changes that it missed.
            self.watch_due(pid);
        }
    }

    /// Stops the coordination service for a while.
    pub(crate) fn outage(&mut self) {
        let after = self.random.between(CUT.0, CUT.1.max(self.options.lease_ttl * 3));
        self.log.count("coordination outage");
        self.log
            .note_world(self.now, || format!("coordination STOPS for {after:?}"));
        self.service.stop(self.now);
        self.at(after, WorldEvent::ServiceBack);
    }

    pub(super) fn service_back(&mut self) {
        self.service.resume(self.now);
        self.notify_watches();
    }

    /// Changes the leader of the coordination service.
    pub(crate) fn change_leader(&mut self) {
        self.log.count("coordination leader change");
        self.log
            .note_world(self.now, || "coordination changes its leader".into());
        self.service.change_leader(self.now);
        self.notify_watches();
    }

    /// Lets a member end the lease of another that is alive.
    pub(crate) fn suspect(&mut self) {
        let (Some((_, by)), Some(node)) = (self.any_process(), self.random.pick(&self.servers()).copied()) else {
            return;
        };
        if self.paused.contains_key(&by) {
            return;
        }
        self.log.count("suspicion");
        self.log.note_world(self.now, || format!("{node} is SUSPECTED"));
        self.membership(by, MembershipEvent::Suspect { node });
    }

    /// Repairs everything and stops injecting faults.
    pub(crate) fn heal(&mut self) {
        self.calm = true;
        self.log.note_world(self.now, || "everything is healed".into());
        self.network.heal();
        self.network.stop_duplicating();
        self.service_back();
        for pid in std::mem::take(&mut self.cut_off).into_keys() {
            self.watch_due(pid);
        }
        let paused: Vec<Pid> = self.paused.keys().copied().collect();
        for pid in paused {
            self.wake(pid);
        }
    }

    /// Whether there are enough servers to lose one.
    pub(crate) fn has_spare_server(&self) -> bool {
        self.servers().len() > 2
    }
}

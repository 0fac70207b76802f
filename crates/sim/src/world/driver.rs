//! The driver of a node: feeds it events and executes its commands, as `elastin-cluster` does on sockets.

use std::time::Duration;

use elastin_protocol::membership::Role;
use elastin_protocol::{Command, Event};
use elastin_types::{ActorId, NodeId};

use super::{World, WorldEvent};
use crate::host::Status;
use crate::show::{actor_of_command, actor_of_event, show_command, show_event};

/// The longest time of a placement.
const PLACEMENT_MOST: Duration = Duration::from_millis(2);
/// The longest delay of the second copy of a frame.
const DUPLICATE_MOST: Duration = Duration::from_millis(50);

impl World {
    /// Feeds an event to a node and executes its commands.
    pub(crate) fn handle(&mut self, id: NodeId, event: Event) {
        let mut commands = Vec::new();
        let mut event = Some(event);
        while let Some(next) = event {
            let Some(process) = self.processes.get_mut(&id) else {
                return;
            };
            self.events += 1;
            self.log.mix(self.now.0 ^ id.0);
            self.log.note(self.now, actor_of_event(&next), || {
                format!("{id} ← {}", show_event(&next))
            });
            process.node.handle(process.clock.local(self.now), next, &mut commands);
            for command in commands.drain(..) {
                if self.crash_is_due(id) {
                    self.crash(id);
                    return;
                }
                self.execute(id, command);
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

    pub(super) fn set_timer(&mut self, id: NodeId) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(wanted) = process.node.next_timer() else {
            return;
        };
        let wanted = process.clock.real(wanted);
        if process.timer.is_none_or(|at| at > wanted) {
            process.timer = Some(wanted);
            self.at_time(wanted, WorldEvent::Timer(id));
        }
    }

    pub(super) fn timer(&mut self, id: NodeId) {
        if let Some(process) = self.processes.get_mut(&id)
            && process.timer.is_some_and(|at| at <= self.now)
        {
            process.timer = None;
            self.handle(id, Event::Timer);
        }
    }

    fn execute(&mut self, id: NodeId, command: Command) {
        self.log.note(self.now, actor_of_command(&command), || {
            format!("    {id} → {}", show_command(&command))
        });
        match command {
            Command::Transmit { to, frame } => {
                self.checkers.frame_leaves(id, self.now);
                if let Some((at, connection)) = self.network.send(self.now, id, to) {
                    let arrives = |frame| WorldEvent::Frame {
                        from: id,
                        to,
                        connection,
                        frame,
                    };
                    let frame = Box::new(frame);
                    if self.network.should_duplicate() {
                        self.log.count("frame duplicated");
                        let later = at + self.random.between(Duration::ZERO, DUPLICATE_MOST);
                        self.at_time(later, arrives(frame.clone()));
                    }
                    self.at_time(at, arrives(frame));
                }
            }
            Command::Complete { call, outcome } => self.complete(call, outcome),
            Command::Deliver { epoch, message } => self.deliver(id, epoch, message),
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
            Command::NeedPlacement { actor, .. } => self.place(id, actor),
            Command::MoveEnded { id, result } => {
                self.log.count(if result.is_ok() { "move done" } else { "move failed" });
                let now = self.now;
                let moving = self.moves.get_mut(&id).expect("only requested moves end");
                let in_groups = self.checkers.groups.ends(id, result);
                self.checkers.note(in_groups);
                if let Ok(epoch) = result {
                    self.checkers.state.moves(&moving.actor, epoch, moving.to);
                }
                let before = moving.ended.replace((now, result));
                assert!(before.is_none(), "a move ends once: {id:?}");
            }
            Command::Refused { from } => self.checkers.refused(id, from),
        }
    }

    /// Places an actor. Placement lags behind the view, so it may choose a server that is about to leave.
    fn place(&mut self, id: NodeId, actor: ActorId) {
        let processes = self.processes.iter();
        let servers = processes.filter(|(_, process)| process.role == Role::Server);
        let servers: Vec<NodeId> = servers.map(|(node, _)| *node).collect();
        let node = self.random.pick(&servers).copied();
        let after = self.up_to(PLACEMENT_MOST);
        let event = Event::Placed { actor, node };
        self.at(after, WorldEvent::Node(id, Box::new(event)));
    }
}

//! Drives the elasticity managers of a server: feeds them events and executes their commands.

use std::collections::VecDeque;

use elastin_control::{ControlMessage, Decision, GemCommand, GemEvent, LemCommand, LemEvent};
use elastin_types::{ActorId, NodeId};

use super::event_loop::{MoveOrigin, Server};
use crate::elasticity::control::{global_manager, send_control};
use crate::wire::ControlFrame;

/// An event for a manager on this server.
pub(super) enum ManagerEvent {
    Local(LemEvent),
    Global(GemEvent),
}

impl Server {
    /// Dispatches events to the managers on this server, together with the events that their commands cause.
    pub(super) fn dispatch(&mut self, first: impl IntoIterator<Item = ManagerEvent>) {
        let mut pending: VecDeque<ManagerEvent> = first.into_iter().collect();
        while let Some(next) = pending.pop_front() {
            let now = self.member.runtime.now();
            match next {
                ManagerEvent::Local(event) => {
                    let mut commands = Vec::new();
                    self.lem.handle(now, event, &mut commands);
                    pending.extend(commands.into_iter().filter_map(|command| self.execute(command)));
                }
                ManagerEvent::Global(event) => {
                    let commands = self.global.as_mut().map(|global| global.handle(now, event));
                    let commands = commands.into_iter().flatten();
                    pending.extend(commands.filter_map(|command| self.execute_global(command)));
                }
            }
        }
    }

    /// Executes a command. Returns the event that it causes for a manager on this server, if any.
    fn execute(&mut self, command: LemCommand) -> Option<ManagerEvent> {
        match command {
            LemCommand::Send { to, message } => return self.send_message(to, message),
            LemCommand::SendToHost { actor, message } => self.send_to_host(actor, message),
            LemCommand::Move { id, actor, to } => {
                let id = self.moves.begin(MoveOrigin::Manager(id));
                self.member.driver.move_actor(id, actor, to);
            }
            LemCommand::Record(decision) => self.keep_record(decision),
            LemCommand::Leave => self.drain(),
            LemCommand::Placed { request, placement } => {
                let node = placement.map(|placement| placement.node);
                self.placements.placed(&self.member.driver, request, node);
            }
        }
        None
    }

    fn execute_global(&mut self, command: GemCommand) -> Option<ManagerEvent> {
        match command {
            GemCommand::Send { to, message } => return self.send_message(to, message),
            GemCommand::AddServers { request, .. } => {
                let reason = "the cluster has no supervisor that can start servers".to_owned();
                return Some(ManagerEvent::Global(GemEvent::ProvisionFailed { request, reason }));
            }
            GemCommand::RemoveServer { node } => self.member.membership.drain(node, true),
            GemCommand::Record(_) | GemCommand::Measured(_) => unreachable!("kept by the manager's driver"),
        }
        None
    }

    fn send_message(&mut self, to: NodeId, message: ControlMessage) -> Option<ManagerEvent> {
        if to != self.member.me {
            self.send_control(to, &ControlFrame::Message(message));
            return None;
        }
        let from = to;
        Some(if message.is_for_global() {
            ManagerEvent::Global(GemEvent::Message { from, message })
        } else {
            ManagerEvent::Local(LemEvent::Message { from, message })
        })
    }

    /// Sends a message to the local manager of an actor's host, by way of the directory.
    fn send_to_host(&mut self, actor: ActorId, message: ControlMessage) {
        let Some(view) = self.member.driver.view() else { return };
        let directory = view.directory_of(&actor).node;
        let frame = ControlFrame::ToHost { actor, message };
        if directory == self.member.me {
            self.handle_control(directory, frame);
        } else {
            self.send_control(directory, &frame);
        }
    }

    fn keep_record(&self, decision: Box<Decision>) {
        match global_manager(&self.roster) {
            Some(node) if node == self.member.me => self.status.lock().record_decision(*decision),
            Some(node) => self.send_control(node, &ControlFrame::Record(decision)),
            None => tracing::warn!("dropped the record of a decision: there is no global manager"),
        }
    }

    pub(super) fn send_control(&self, to: NodeId, frame: &ControlFrame) {
        send_control(&self.member.driver, to, frame);
    }
}

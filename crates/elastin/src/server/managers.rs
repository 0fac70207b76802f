//! What elasticity managers on a server are told, and how what they want is carried out.

use std::collections::VecDeque;

use elastin_cluster::Class;
use elastin_control::{ControlMessage, Decision, GemCommand, GemEvent, LemCommand, LemEvent};
use elastin_types::{ActorId, NodeId};

use super::event_loop::{Asked, Server};
use crate::elasticity::control::global_manager;
use crate::wire::{self, ControlFrame};

/// What a manager on this server has to know.
pub(super) enum ManagerEvent {
    Local(LemEvent),
    Global(GemEvent),
}

impl Server {
    /// Tells the managers on this server something, and all that follows from it.
    pub(super) fn tell(&mut self, first: impl IntoIterator<Item = ManagerEvent>) {
        let mut told: VecDeque<ManagerEvent> = first.into_iter().collect();
        while let Some(next) = told.pop_front() {
            let now = self.member.runtime.now();
            match next {
                ManagerEvent::Local(event) => {
                    let mut commands = Vec::new();
                    self.lem.handle(now, event, &mut commands);
                    told.extend(commands.into_iter().filter_map(|command| self.carry_out(command)));
                }
                ManagerEvent::Global(event) => {
                    let commands = self.global.as_mut().map(|global| global.tell(now, event));
                    let commands = commands.into_iter().flatten();
                    told.extend(commands.filter_map(|command| self.carry_out_global(command)));
                }
            }
        }
    }

    /// Carries out a command; what it means to a manager on this server comes back.
    fn carry_out(&mut self, command: LemCommand) -> Option<ManagerEvent> {
        match command {
            LemCommand::Send { to, message } => return self.send_message(to, message),
            LemCommand::SendToHost { actor, message } => self.send_to_host(actor, message),
            LemCommand::Move { id, actor, to } => {
                let id = self.moves.begin(Asked::Manager(id));
                self.member.peer.move_actor(id, actor, to);
            }
            LemCommand::Record(decision) => self.keep_record(decision),
            LemCommand::Leave => self.drain(),
            LemCommand::Placed { request, placement } => {
                if let Some(actor) = self.placements.remove(&request) {
                    self.member
                        .peer
                        .placed(actor, placement.map(|placement| placement.node));
                }
            }
        }
        None
    }

    fn carry_out_global(&mut self, command: GemCommand) -> Option<ManagerEvent> {
        match command {
            GemCommand::Send { to, message } => return self.send_message(to, message),
            GemCommand::AddServers { request, .. } => {
                let reason = "nobody here can start servers".to_owned();
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

    /// Passes a message on to the local manager of the server that an actor is on, by way of the directory.
    fn send_to_host(&mut self, actor: ActorId, message: ControlMessage) {
        let Some(view) = self.member.peer.view() else { return };
        let directory = view.directory_of(&actor).node;
        let frame = ControlFrame::ToHost { actor, message };
        if directory == self.member.me {
            self.hear_control(directory, frame);
        } else {
            self.send_control(directory, &frame);
        }
    }

    fn keep_record(&self, decision: Box<Decision>) {
        match global_manager(&self.roster) {
            Some(node) if node == self.member.me => self.status.lock().decided(*decision),
            Some(node) => self.send_control(node, &ControlFrame::Record(decision)),
            None => tracing::warn!("there is nobody to keep a record"),
        }
    }

    pub(super) fn send_control(&self, to: NodeId, frame: &ControlFrame) {
        if let Err(error) = self.member.peer.send(to, Class::Control, &wire::encode(frame)) {
            // Every question between managers has a time limit, so a lost frame costs a period at most.
            tracing::warn!(%to, %error, "a frame was dropped");
        }
    }
}

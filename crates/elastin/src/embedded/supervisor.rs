//! The supervisor: one task that starts and ends servers, places new actors, and runs the global elasticity manager.

use std::collections::HashMap;
use std::sync::Arc;

use elastin_cluster::{Class, Heard, MemberRecord, Role, Roster};
use elastin_control::{Config, ControlMessage, Gem, GemCommand, GemEvent, NewActor};
use elastin_policy::Policy;
use elastin_types::{ActorId, Caller, NodeId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::MoveFailed;
use super::status::Status;
use crate::control::{members_of, sleep_until_due};
use crate::member::{Below, Member};
use crate::provision::{Exited, ProcessProvisioner};
use crate::settings::ClusterSettings;
use crate::wire::{self, AdminFrame, ControlFrame};

/// What an operator can ask of the supervisor.
pub(super) enum Request {
    Move {
        actor: ActorId,
        server: String,
        answer: oneshot::Sender<Result<(), MoveFailed>>,
    },
    Add {
        answer: oneshot::Sender<std::io::Result<String>>,
    },
    Drain {
        server: String,
    },
    Kill {
        server: String,
        answer: oneshot::Sender<bool>,
    },
    ProcessId {
        server: String,
        answer: oneshot::Sender<Option<u32>>,
    },
    Shutdown {
        answer: oneshot::Sender<()>,
    },
}

/// Servers that were started and are waited for.
struct Awaited {
    names: Vec<String>,
    whom: Awaiting,
}

/// Who waits for servers.
enum Awaiting {
    /// Whoever started the cluster.
    Start(oneshot::Sender<()>),
    /// The global manager, with the number of its asking.
    Manager(u64),
    /// An operator.
    Operator(oneshot::Sender<std::io::Result<String>>),
    /// Nobody: they replace servers that died.
    Nobody,
}

/// A move that an operator asked for and a server carries out.
struct AskedMove {
    host: NodeId,
    answer: oneshot::Sender<Result<(), MoveFailed>>,
}

pub(super) struct Supervisor {
    member: Member,
    provisioner: ProcessProvisioner,
    gem: Gem,
    status: Arc<Mutex<Status>>,
    roster: Roster,
    awaited: Vec<Awaited>,
    servers_started: u32,
    servers_min: u32,
    servers_max: u32,
    placements: HashMap<u64, ActorId>,
    moves: HashMap<u64, AskedMove>,
    requests_made: u64,
}

impl Supervisor {
    pub(super) fn new(
        member: Member,
        provisioner: ProcessProvisioner,
        policy: Arc<Policy>,
        settings: &ClusterSettings,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let config = Config {
            node: member.me,
            policy,
            settings: settings.elasticity(),
            seed: member.me.0,
        };
        Supervisor {
            member,
            provisioner,
            gem: Gem::new(config),
            status,
            roster: Roster::default(),
            awaited: Vec::new(),
            servers_started: 0,
            servers_min: settings.servers_min,
            servers_max: settings.servers_max,
            placements: HashMap::new(),
            moves: HashMap::new(),
            requests_made: 0,
        }
    }

    /// Starts the first servers and the supervisor's task; what is returned ends when they are all members.
    pub(super) fn start(
        mut self,
        servers: u32,
        exited: mpsc::UnboundedReceiver<Exited>,
        asked: mpsc::UnboundedReceiver<Request>,
    ) -> std::io::Result<oneshot::Receiver<()>> {
        let (all, all_there) = oneshot::channel();
        self.start_servers(servers, Awaiting::Start(all))?;
        tokio::spawn(self.run(exited, asked));
        Ok(all_there)
    }

    async fn run(mut self, mut exited: mpsc::UnboundedReceiver<Exited>, mut asked: mpsc::UnboundedReceiver<Request>) {
        loop {
            let due = self.gem.next_timer().map(|at| at.since(self.member.runtime.now()));
            tokio::select! {
                Some(below) = self.member.below.recv() => self.hear(below),
                Some(heard) = self.member.heard.recv() => match heard {
                    Heard::Roster(roster) => self.meet(roster),
                    Heard::Evicted => return tracing::error!("the supervisor lost its own lease: the cluster ends"),
                },
                Some(exited) = exited.recv() => self.bury(exited),
                request = asked.recv() => match request {
                    Some(Request::Shutdown { answer }) => {
                        self.end(&mut exited).await;
                        let _ = answer.send(());
                        return;
                    }
                    Some(request) => self.serve(request),
                    // Dropping the provisioner ends the servers.
                    None => return,
                },
                () = sleep_until_due(due) => self.tell(GemEvent::Tick),
            }
        }
    }

    fn hear(&mut self, below: Below) {
        match below {
            Below::Frame {
                from,
                class: Class::Control,
                payload,
            } => {
                if let Some(frame) = wire::decode(from, &payload) {
                    self.hear_control(from, frame);
                }
            }
            Below::Frame { from, payload, .. } => {
                if let Some(AdminFrame::MoveEnded { request, result }) = wire::decode(from, &payload)
                    && let Some(asked) = self.moves.remove(&request)
                {
                    let _ = asked.answer.send(result.map_err(MoveFailed::Refused));
                }
            }
            Below::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => self.place(actor, caller, caller_node),
            Below::MoveEnded { .. } => unreachable!("the supervisor hosts no actors"),
        }
    }

    fn hear_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) => {
                if let ControlMessage::Report(report) = &message {
                    let reserved_for = report.reservations.iter().map(|reservation| reservation.actor.clone());
                    self.status.lock().reported(&report.server, reserved_for.collect());
                }
                self.tell(GemEvent::Message { from, message });
            }
            ControlFrame::ToHost { actor, message } => {
                if let Some(host) = self.member.peer.host_of(&actor) {
                    self.send(
                        host,
                        Class::Control,
                        &wire::encode(&ControlFrame::Relayed { from, message }),
                    );
                }
            }
            ControlFrame::Record(decision) => self.status.lock().decided(*decision),
            ControlFrame::Leave => {
                if let Some(record) = self.roster.members.get(&from) {
                    self.provisioner.stop(&record.name);
                }
            }
            ControlFrame::Relayed { .. } => tracing::warn!(%from, "a frame for a server came to the supervisor"),
        }
    }

    fn place(&mut self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        self.requests_made += 1;
        let request = self.requests_made;
        self.placements.insert(request, actor.clone());
        let caller_hosts = self
            .roster
            .members
            .get(&caller_node)
            .is_some_and(|record| record.role == Role::Server);
        let new = NewActor {
            actor,
            caller: match caller {
                Caller::Actor(caller) => Some(caller),
                Caller::Client(_) => None,
            },
            caller_node: caller_hosts.then_some(caller_node),
        };
        let from = self.member.me;
        self.tell(GemEvent::Message {
            from,
            message: ControlMessage::Place { request, new },
        });
    }

    fn tell(&mut self, event: GemEvent) {
        let mut commands = Vec::new();
        self.gem.handle(self.member.runtime.now(), event, &mut commands);
        for command in commands {
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: GemCommand) {
        match command {
            GemCommand::Send {
                to,
                message: ControlMessage::Placed { request, placement },
            } if to == self.member.me => {
                if let Some(actor) = self.placements.remove(&request) {
                    let node = placement
                        .map(|placement| placement.node)
                        .or_else(|| self.any_server(request));
                    self.member.peer.placed(actor, node);
                }
            }
            GemCommand::Send { to, message } => {
                self.send(to, Class::Control, &wire::encode(&ControlFrame::Message(message)));
            }
            GemCommand::AddServers { request, count, .. } => {
                if let Err(error) = self.start_servers(count, Awaiting::Manager(request)) {
                    self.tell(GemEvent::ProvisionFailed {
                        request,
                        reason: error.to_string(),
                    });
                }
            }
            GemCommand::RemoveServer { node } => {
                if let Some(record) = self.roster.members.get(&node) {
                    self.drain(&record.name);
                }
            }
            GemCommand::Record(decision) => self.status.lock().decided(*decision),
            GemCommand::Measured(capacity) => self.status.lock().measured(capacity),
        }
    }

    /// A server that takes actors, another one each time: where they go while none has reported to the global manager.
    fn any_server(&self, turn: u64) -> Option<NodeId> {
        let takes = |record: &MemberRecord| record.role == Role::Server && !record.draining;
        let servers: Vec<NodeId> = self
            .roster
            .members
            .iter()
            .filter(|(_, record)| takes(record))
            .map(|(node, _)| *node)
            .collect();
        let index = turn % (servers.len().max(1) as u64);
        servers.get(index as usize).copied()
    }

    /// The membership changed.
    fn meet(&mut self, roster: Roster) {
        let servers = roster.members.iter().filter(|(_, record)| record.role == Role::Server);
        self.status
            .lock()
            .set_servers(servers.map(|(node, record)| (*node, record.name.clone(), record.draining)));
        self.roster = roster;
        self.tell(GemEvent::Members(members_of(&self.roster)));
        // A server that is gone answers no more: whoever waits for it hears that, and need not wait in vain.
        self.moves
            .retain(|_, asked| self.roster.members.contains_key(&asked.host));
        let all_there = |awaited: &Awaited| awaited.names.iter().all(|name| self.roster.named(name).is_some());
        let (there, awaited) = std::mem::take(&mut self.awaited).into_iter().partition(all_there);
        self.awaited = awaited;
        for Awaited { names, whom } in there {
            match whom {
                Awaiting::Start(all) => drop(all.send(())),
                Awaiting::Manager(request) => {
                    let nodes = names.iter().filter_map(|name| self.roster.named(name)).collect();
                    self.tell(GemEvent::Provisioned { request, nodes });
                }
                Awaiting::Operator(answer) => drop(answer.send(Ok(names.concat()))),
                Awaiting::Nobody => {}
            }
        }
    }

    fn start_servers(&mut self, count: u32, whom: Awaiting) -> std::io::Result<()> {
        let room = (self.servers_max as usize).saturating_sub(self.provisioner.count());
        if count as usize > room {
            return Err(std::io::Error::other(format!(
                "the cluster may have at most {} servers",
                self.servers_max
            )));
        }
        let mut names = Vec::new();
        for _ in 0..count {
            self.servers_started += 1;
            let name = format!("server-{}", self.servers_started);
            self.provisioner.start(&name)?;
            names.push(name);
        }
        self.awaited.push(Awaited { names, whom });
        Ok(())
    }

    /// A server's process has ended: its membership ends now, and a server that was not told to go is replaced if there are
    /// too few.
    fn bury(&mut self, exited: Exited) {
        if exited.expected {
            tracing::info!(server = exited.name, "a server left");
        } else {
            tracing::warn!(server = exited.name, how = exited.how, "a server's process ended");
        }
        if let Some(node) = self.roster.named(&exited.name) {
            self.member.membership.stopped(node);
        }
        let (lost, awaited) = std::mem::take(&mut self.awaited)
            .into_iter()
            .partition(|awaited| awaited.names.contains(&exited.name));
        self.awaited = awaited;
        for Awaited { whom, .. } in lost {
            let reason = format!("{} ended before it had joined ({})", exited.name, exited.how);
            match whom {
                Awaiting::Manager(request) => self.tell(GemEvent::ProvisionFailed { request, reason }),
                Awaiting::Operator(answer) => drop(answer.send(Err(std::io::Error::other(reason)))),
                // Whoever started the cluster sees that the sender is gone.
                Awaiting::Start(_) | Awaiting::Nobody => {}
            }
        }
        if (self.provisioner.count() as u32) < self.servers_min
            && let Err(error) = self.start_servers(1, Awaiting::Nobody)
        {
            tracing::error!(%error, "a server could not be replaced");
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Move { actor, server, answer } => self.move_actor(actor, server, answer),
            Request::Add { answer } => {
                let room = (self.servers_max as usize).saturating_sub(self.provisioner.count());
                if room == 0 {
                    let full = format!("the cluster may have at most {} servers", self.servers_max);
                    let _ = answer.send(Err(std::io::Error::other(full)));
                } else if let Err(error) = self.start_servers(1, Awaiting::Operator(answer)) {
                    tracing::error!(%error, "a server could not be started");
                }
            }
            Request::Drain { server } => self.drain(&server),
            Request::Kill { server, answer } => drop(answer.send(self.provisioner.kill(&server))),
            Request::ProcessId { server, answer } => drop(answer.send(self.provisioner.process_id(&server))),
            Request::Shutdown { .. } => unreachable!("handled by the loop, which it ends"),
        }
    }

    fn move_actor(&mut self, actor: ActorId, server: String, answer: oneshot::Sender<Result<(), MoveFailed>>) {
        let Some(to) = self.roster.named(&server) else {
            return drop(answer.send(Err(MoveFailed::NoSuchServer(server))));
        };
        // The directory forgets the actors of a dead server only when they are called again.
        let host = self
            .member
            .peer
            .host_of(&actor)
            .filter(|host| self.roster.members.contains_key(host));
        let Some(host) = host else {
            return drop(answer.send(Err(MoveFailed::NotActive)));
        };
        self.requests_made += 1;
        let request = self.requests_made;
        self.moves.insert(request, AskedMove { host, answer });
        self.send(
            host,
            Class::Admin,
            &wire::encode(&AdminFrame::Move { request, actor, to }),
        );
    }

    fn drain(&self, server: &str) {
        match self.roster.named(server) {
            Some(node) => self.member.membership.drain(node, true),
            None => tracing::warn!(server, "there is no such server to drain"),
        }
    }

    async fn end(&mut self, exited: &mut mpsc::UnboundedReceiver<Exited>) {
        let servers = self
            .roster
            .members
            .values()
            .filter(|record| record.role == Role::Server);
        for record in servers {
            self.provisioner.stop(&record.name);
        }
        while self.provisioner.count() > 0 && exited.recv().await.is_some() {}
        self.member.peer.close();
    }

    fn send(&self, to: NodeId, class: Class, payload: &[u8]) {
        if let Err(error) = self.member.peer.send(to, class, payload) {
            tracing::warn!(%to, %error, "a frame was dropped");
        }
    }
}

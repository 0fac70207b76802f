//! The supervisor: one task that starts and ends servers, places new actors, and runs the global elasticity manager.

use std::collections::HashMap;
use std::sync::Arc;

use elastin_cluster::{Class, MembershipUpdate, Role, Roster};
use elastin_control::{ControlMessage, GemCommand, GemEvent};
use elastin_policy::Policy;
use elastin_types::{ActorId, Caller, NodeId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::admin::{AdminError, AdminReply, AdminRequest, AdminResult, AdminService, AdminTask, Asker, answer};
use crate::elasticity::control::{members_of, new_actor, sleep_until_due};
use crate::elasticity::global::Global;
use crate::member::{Member, NodeEvent};
use crate::provision::{Exited, ProcessProvisioner};
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::wire::{self, ControlFrame};

/// What an operator can ask of the supervisor.
pub(super) enum Request {
    Move {
        actor: ActorId,
        server: String,
        answer: oneshot::Sender<AdminResult>,
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
    /// Whoever started the cluster. So many servers may still end before they have joined, and are replaced.
    Start {
        all: oneshot::Sender<Result<(), String>>,
        failures_left: u32,
    },
    /// The global manager, with the number of its asking.
    Manager(u64),
    /// An operator.
    Operator(oneshot::Sender<std::io::Result<String>>),
    /// Nobody: they replace servers that died.
    Nobody,
}

/// How many servers may end before they have joined while a cluster is started: on a machine that is very busy a new server may
/// lose its lease at once. If there are more, they are not what they should be.
const START_FAILURES_MAX: u32 = 3;

pub(super) struct Supervisor {
    member: Member,
    provisioner: ProcessProvisioner,
    global: Global,
    admin: AdminService,
    status: Arc<Mutex<Status>>,
    roster: Roster,
    awaited: Vec<Awaited>,
    servers_started: u32,
    servers_min: u32,
    servers_max: u32,
    placements: HashMap<u64, ActorId>,
    placements_asked: u64,
}

impl Supervisor {
    pub(super) fn new(
        member: Member,
        provisioner: ProcessProvisioner,
        policy: Arc<Policy>,
        settings: &ClusterSettings,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let global = Global::new(member.me, policy, settings, Arc::clone(&status));
        Supervisor {
            member,
            provisioner,
            global,
            admin: AdminService::default(),
            status,
            roster: Roster::default(),
            awaited: Vec::new(),
            servers_started: 0,
            servers_min: settings.servers_min,
            servers_max: settings.servers_max,
            placements: HashMap::new(),
            placements_asked: 0,
        }
    }

    /// Starts the first servers and the supervisor's task; what is returned ends when they are all members, or with why not.
    pub(super) fn start(
        mut self,
        servers: u32,
        exited: mpsc::UnboundedReceiver<Exited>,
        asked: mpsc::UnboundedReceiver<Request>,
    ) -> std::io::Result<oneshot::Receiver<Result<(), String>>> {
        let (all, all_there) = oneshot::channel();
        let failures_left = START_FAILURES_MAX;
        self.start_servers(servers, Awaiting::Start { all, failures_left })?;
        tokio::spawn(self.run(exited, asked));
        Ok(all_there)
    }

    async fn run(mut self, mut exited: mpsc::UnboundedReceiver<Exited>, mut asked: mpsc::UnboundedReceiver<Request>) {
        let (mut below, mut heard) = self.member.take_ears();
        let sleeper = self.member.runtime.clock().sleeper("the global elasticity manager");
        loop {
            let due = self.global.next_timer();
            tokio::select! {
                Some(below) = below.recv() => self.hear(below),
                Some(heard) = heard.recv() => match heard {
                    MembershipUpdate::Roster(roster) => self.meet(roster),
                    MembershipUpdate::Evicted => return tracing::error!("the supervisor lost its own lease: the cluster ends"),
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
                () = sleep_until_due(&sleeper, due) => self.tell(GemEvent::Tick),
            }
        }
    }

    fn hear(&mut self, below: NodeEvent) {
        match below {
            NodeEvent::Frame {
                from,
                class: Class::Control,
                payload,
                ..
            } => {
                if let Some(frame) = wire::decode(from, &payload) {
                    self.hear_control(from, frame);
                }
            }
            NodeEvent::Frame { from, payload, .. } => {
                let task = self.admin.hear(&self.member.peer, &self.roster, from, &payload);
                self.run_errand(task);
            }
            NodeEvent::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => self.place(actor, caller, caller_node),
            NodeEvent::MoveEnded { .. } => unreachable!("the supervisor hosts no actors"),
        }
    }

    fn hear_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) => {
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

    /// What an operator wants of the supervisor itself.
    fn run_errand(&mut self, task: Option<AdminTask>) {
        let (asker, result) = match task {
            Some(AdminTask::Status { asker }) => (asker, Ok(AdminReply::Servers(self.status.lock().servers()))),
            // It hosts no actors, and ends only with its cluster.
            Some(AdminTask::Move { asker, .. } | AdminTask::Drain { asker }) => (asker, Err(AdminError::WrongNode)),
            None => return,
        };
        answer(&self.member.peer, asker, result);
    }

    fn place(&mut self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        self.placements_asked += 1;
        let request = self.placements_asked;
        self.placements.insert(request, actor.clone());
        let new = new_actor(&self.roster, actor, caller, caller_node);
        let from = self.member.me;
        self.tell(GemEvent::Message {
            from,
            message: ControlMessage::Place { request, new },
        });
    }

    fn tell(&mut self, event: GemEvent) {
        for command in self.global.tell(self.member.runtime.now(), event) {
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
                    self.member
                        .peer
                        .placed(actor, placement.map(|placement| placement.node));
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
            GemCommand::RemoveServer { node } => self.member.membership.drain(node, true),
            GemCommand::Record(_) | GemCommand::Measured(_) => unreachable!("kept by the manager's driver"),
        }
    }

    /// The membership changed.
    fn meet(&mut self, roster: Roster) {
        let servers = roster.members.iter().filter(|(_, record)| record.role == Role::Server);
        self.status
            .lock()
            .set_servers(servers.map(|(node, record)| (*node, record.name.clone(), record.draining)));
        self.roster = roster;
        self.tell(GemEvent::Members(members_of(&self.roster)));
        self.admin.meet(&self.member.peer, &self.roster);
        let all_there = |awaited: &Awaited| awaited.names.iter().all(|name| self.roster.named(name).is_some());
        let (there, awaited) = std::mem::take(&mut self.awaited).into_iter().partition(all_there);
        self.awaited = awaited;
        for Awaited { names, whom } in there {
            match whom {
                Awaiting::Start { all, .. } => drop(all.send(Ok(()))),
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
            names.push(self.start_server()?);
        }
        self.awaited.push(Awaited { names, whom });
        Ok(())
    }

    /// Starts a server; gives its name.
    fn start_server(&mut self) -> std::io::Result<String> {
        self.servers_started += 1;
        let name = format!("server-{}", self.servers_started);
        self.provisioner.start(&name, self.servers_started)?;
        Ok(name)
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
        for Awaited { mut names, whom } in lost {
            let reason = format!("{} ended before it had joined ({})", exited.name, exited.how);
            match whom {
                Awaiting::Manager(request) => self.tell(GemEvent::ProvisionFailed { request, reason }),
                Awaiting::Operator(answer) => drop(answer.send(Err(std::io::Error::other(reason)))),
                Awaiting::Start { all, failures_left: 0 } => drop(all.send(Err(reason))),
                Awaiting::Start { all, failures_left } => match self.start_server() {
                    Ok(instead) => {
                        names.retain(|name| *name != exited.name);
                        names.push(instead);
                        let failures_left = failures_left - 1;
                        let whom = Awaiting::Start { all, failures_left };
                        self.awaited.push(Awaited { names, whom });
                    }
                    Err(error) => drop(all.send(Err(error.to_string()))),
                },
                Awaiting::Nobody => {}
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

    fn move_actor(&mut self, actor: ActorId, server: String, answer: oneshot::Sender<AdminResult>) {
        let asker = Asker::Local(answer);
        match self.roster.named(&server) {
            Some(to) => {
                let what = AdminRequest::Move { actor, to };
                let task = self.admin.ask(&self.member.peer, &self.roster, asker, what);
                self.run_errand(task);
            }
            None => crate::admin::answer(&self.member.peer, asker, Err(AdminError::NoSuchServer(server))),
        }
    }

    fn drain(&mut self, server: &str) {
        match self.roster.named(server) {
            Some(node) => {
                // Nobody waits for the answer: that it is gone shows in the roster.
                let (answer, _) = oneshot::channel();
                self.admin
                    .ask_of(&self.member.peer, node, Asker::Local(answer), AdminRequest::Drain);
            }
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

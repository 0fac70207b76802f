//! The supervisor: one task that starts and stops servers, places new actors, and runs the global elasticity manager.

use std::sync::Arc;

use elastin_cluster::{Class, MembershipUpdate, Role, Roster};
use elastin_control::{ControlMessage, GemCommand, GemEvent};
use elastin_policy::Policy;
use elastin_types::{ActorId, Caller, NodeId};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::admin::{AdminError, AdminReply, AdminRequest, AdminResult, AdminService, AdminTask, Requester, answer};
use crate::elasticity::control::{members_of, new_actor, relay_to_host, send_control, sleep_until_due};
use crate::elasticity::global::Global;
use crate::elasticity::placements::Placements;
use crate::member::{Member, NodeEvent};
use crate::provision::{Exited, ProcessProvisioner};
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::wire::{self, ControlFrame};

/// A request of an operator to the supervisor.
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

/// Servers that were started and have not all joined yet.
struct PendingServers {
    names: Vec<String>,
    started_for: StartedFor,
}

/// The reason why servers were started, with the recipient of the outcome.
enum StartedFor {
    /// The start of the cluster. Servers that end before they have joined are replaced until no failure is left.
    Start {
        all: oneshot::Sender<Result<(), String>>,
        failures_left: u32,
    },
    /// The global manager, with the id of its request.
    Manager(u64),
    /// An operator.
    Operator(oneshot::Sender<std::io::Result<String>>),
    /// The replacement of servers that died.
    Replacement,
}

/// The most servers that may exit before they have joined while a cluster starts: on an overloaded machine a new server
/// may lose its lease at once. More failures mean that the program does not work as a server.
const START_FAILURES_MAX: u32 = 3;

pub(super) struct Supervisor {
    member: Member,
    provisioner: ProcessProvisioner,
    global: Global,
    admin: AdminService,
    status: Arc<Mutex<Status>>,
    roster: Roster,
    pending: Vec<PendingServers>,
    servers_started: u32,
    servers_min: u32,
    servers_max: u32,
    placements: Placements,
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
            pending: Vec::new(),
            servers_started: 0,
            servers_min: settings.servers_min,
            servers_max: settings.servers_max,
            placements: Placements::default(),
        }
    }

    /// Starts the first servers and the supervisor's task. The returned receiver gets `Ok` once all have joined, or the
    /// reason why not.
    pub(super) fn start(
        mut self,
        servers: u32,
        exited: mpsc::UnboundedReceiver<Exited>,
        requests: mpsc::UnboundedReceiver<Request>,
    ) -> std::io::Result<oneshot::Receiver<Result<(), String>>> {
        let (all, all_joined) = oneshot::channel();
        let names = self.start_servers(servers)?;
        let failures_left = START_FAILURES_MAX;
        self.await_servers(names, StartedFor::Start { all, failures_left });
        tokio::spawn(self.run(exited, requests));
        Ok(all_joined)
    }

    async fn run(
        mut self,
        mut exited: mpsc::UnboundedReceiver<Exited>,
        mut requests: mpsc::UnboundedReceiver<Request>,
    ) {
        let (mut events, mut membership_updates) = self.member.take_receivers();
        let sleeper = self.member.runtime.clock().sleeper("the global elasticity manager");
        loop {
            let due = self.global.next_timer();
            tokio::select! {
                Some(event) = events.recv() => self.handle_event(event),
                Some(update) = membership_updates.recv() => match update {
                    MembershipUpdate::Roster(roster) => self.set_roster(roster),
                    MembershipUpdate::Evicted => return tracing::error!("the supervisor lost its own lease: the cluster ends"),
                },
                Some(exited) = exited.recv() => self.server_exited(exited),
                request = requests.recv() => match request {
                    Some(Request::Shutdown { answer }) => {
                        self.end(&mut exited).await;
                        let _ = answer.send(());
                        return;
                    }
                    Some(request) => self.serve(request),
                    // Dropping the provisioner stops the servers.
                    None => return,
                },
                () = sleep_until_due(&sleeper, due) => self.dispatch(GemEvent::Tick),
            }
        }
    }

    fn handle_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Frame {
                from,
                class: Class::Control,
                payload,
                ..
            } => {
                if let Some(frame) = wire::decode(from, &payload) {
                    self.handle_control(from, frame);
                }
            }
            NodeEvent::Frame { from, payload, .. } => {
                let task = self
                    .admin
                    .handle_frame(&self.member.driver, &self.roster, from, &payload);
                self.run_admin_task(task);
            }
            NodeEvent::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => self.place(actor, caller, caller_node),
            NodeEvent::MoveEnded { .. } => unreachable!("the supervisor hosts no actors"),
        }
    }

    fn handle_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) => {
                self.dispatch(GemEvent::Message { from, message });
            }
            ControlFrame::ToHost { actor, message } => relay_to_host(&self.member.driver, from, &actor, message),
            ControlFrame::Record(decision) => self.status.lock().record_decision(*decision),
            ControlFrame::Leave => {
                if let Some(record) = self.roster.members.get(&from) {
                    self.provisioner.stop(&record.name);
                }
            }
            ControlFrame::Relayed { .. } => tracing::warn!(%from, "ignoring a server-only frame"),
        }
    }

    /// Serves an admin task that is for the supervisor itself.
    fn run_admin_task(&mut self, task: Option<AdminTask>) {
        let (requester, result) = match task {
            Some(AdminTask::Status { requester }) => (requester, Ok(AdminReply::Servers(self.status.lock().servers()))),
            // The supervisor hosts no actors, and ends only with its cluster.
            Some(AdminTask::Move { requester, .. } | AdminTask::Drain { requester }) => {
                (requester, Err(AdminError::WrongNode))
            }
            None => return,
        };
        answer(&self.member.driver, requester, result);
    }

    fn place(&mut self, actor: ActorId, caller: Caller, caller_node: NodeId) {
        let request = self.placements.request(actor.clone());
        let new = new_actor(&self.roster, actor, caller, caller_node);
        let from = self.member.me;
        self.dispatch(GemEvent::Message {
            from,
            message: ControlMessage::Place { request, new },
        });
    }

    /// Dispatches an event to the global manager and executes its commands.
    fn dispatch(&mut self, event: GemEvent) {
        for command in self.global.handle(self.member.runtime.now(), event) {
            self.execute(command);
        }
    }

    fn execute(&mut self, command: GemCommand) {
        match command {
            GemCommand::Send {
                to,
                message: ControlMessage::Placed { request, placement },
            } if to == self.member.me => {
                let node = placement.map(|placement| placement.node);
                self.placements.placed(&self.member.driver, request, node);
            }
            GemCommand::Send { to, message } => {
                send_control(&self.member.driver, to, &ControlFrame::Message(message));
            }
            GemCommand::AddServers { request, count, .. } => match self.start_servers(count) {
                Ok(names) => self.await_servers(names, StartedFor::Manager(request)),
                Err(error) => self.dispatch(GemEvent::ProvisionFailed {
                    request,
                    reason: error.to_string(),
                }),
            },
            GemCommand::RemoveServer { node } => self.member.membership.drain(node, true),
            GemCommand::Record(_) | GemCommand::Measured(_) => unreachable!("kept by the manager's driver"),
        }
    }

    /// Applies a new roster, and reports the pending servers that have joined.
    fn set_roster(&mut self, roster: Roster) {
        self.status.lock().set_roster(&roster);
        self.roster = roster;
        self.dispatch(GemEvent::Members(members_of(&self.roster)));
        self.admin.roster_changed(&self.member.driver, &self.roster);
        let all_joined = |servers: &PendingServers| servers.names.iter().all(|name| self.roster.named(name).is_some());
        let (joined, pending) = std::mem::take(&mut self.pending).into_iter().partition(all_joined);
        self.pending = pending;
        for PendingServers { names, started_for } in joined {
            match started_for {
                StartedFor::Start { all, .. } => drop(all.send(Ok(()))),
                StartedFor::Manager(request) => {
                    let nodes = names.iter().filter_map(|name| self.roster.named(name)).collect();
                    self.dispatch(GemEvent::Provisioned { request, nodes });
                }
                StartedFor::Operator(answer) => drop(answer.send(Ok(names.concat()))),
                StartedFor::Replacement => {}
            }
        }
    }

    /// Starts servers and returns their names.
    fn start_servers(&mut self, count: u32) -> std::io::Result<Vec<String>> {
        let room = (self.servers_max as usize).saturating_sub(self.provisioner.count());
        if count as usize > room {
            return Err(std::io::Error::other(format!(
                "the cluster may have at most {} servers",
                self.servers_max
            )));
        }
        (0..count).map(|_| self.start_server()).collect()
    }

    /// Reports to `started_for` once these servers have joined, or when one of them exits before.
    fn await_servers(&mut self, names: Vec<String>, started_for: StartedFor) {
        self.pending.push(PendingServers { names, started_for });
    }

    /// Starts a server and returns its name.
    fn start_server(&mut self) -> std::io::Result<String> {
        self.servers_started += 1;
        let name = format!("server-{}", self.servers_started);
        self.provisioner.start(&name, self.servers_started)?;
        Ok(name)
    }

    /// Ends the membership of a server whose process has exited, and replaces the server if there are too few.
    fn server_exited(&mut self, exited: Exited) {
        if exited.expected {
            tracing::info!(server = exited.name, "server left");
        } else {
            tracing::warn!(
                server = exited.name,
                how = exited.how,
                "server process exited unexpectedly"
            );
        }
        if let Some(node) = self.roster.named(&exited.name) {
            self.member.membership.stopped(node);
        }
        let (failed, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|servers| servers.names.contains(&exited.name));
        self.pending = pending;
        for PendingServers { mut names, started_for } in failed {
            let reason = format!("{} exited before it had joined ({})", exited.name, exited.how);
            match started_for {
                StartedFor::Manager(request) => self.dispatch(GemEvent::ProvisionFailed { request, reason }),
                StartedFor::Operator(answer) => drop(answer.send(Err(std::io::Error::other(reason)))),
                StartedFor::Start { all, failures_left: 0 } => drop(all.send(Err(reason))),
                StartedFor::Start { all, failures_left } => match self.start_server() {
                    Ok(replacement) => {
                        names.retain(|name| *name != exited.name);
                        names.push(replacement);
                        let failures_left = failures_left - 1;
                        self.await_servers(names, StartedFor::Start { all, failures_left });
                    }
                    Err(error) => drop(all.send(Err(error.to_string()))),
                },
                StartedFor::Replacement => {}
            }
        }
        if (self.provisioner.count() as u32) < self.servers_min {
            match self.start_servers(1) {
                Ok(names) => self.await_servers(names, StartedFor::Replacement),
                Err(error) => tracing::error!(%error, "failed to replace a server"),
            }
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Move { actor, server, answer } => self.move_actor(actor, server, answer),
            Request::Add { answer } => match self.start_servers(1) {
                Ok(names) => self.await_servers(names, StartedFor::Operator(answer)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Request::Drain { server } => self.drain(&server),
            Request::Kill { server, answer } => drop(answer.send(self.provisioner.kill(&server))),
            Request::ProcessId { server, answer } => drop(answer.send(self.provisioner.process_id(&server))),
            Request::Shutdown { .. } => unreachable!("handled by the loop, which it ends"),
        }
    }

    fn move_actor(&mut self, actor: ActorId, server: String, answer: oneshot::Sender<AdminResult>) {
        let requester = Requester::Local(answer);
        match self.roster.named(&server) {
            Some(to) => {
                let request = AdminRequest::Move { actor, to };
                let task = self.admin.submit(&self.member.driver, &self.roster, requester, request);
                self.run_admin_task(task);
            }
            None => crate::admin::answer(&self.member.driver, requester, Err(AdminError::NoSuchServer(server))),
        }
    }

    fn drain(&mut self, server: &str) {
        match self.roster.named(server) {
            Some(node) => {
                // The answer is not awaited: the roster shows when the server has left.
                let (answer, _) = oneshot::channel();
                self.admin
                    .forward(&self.member.driver, node, Requester::Local(answer), AdminRequest::Drain);
            }
            None => tracing::warn!(server, "can't drain an unknown server"),
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
        self.member.driver.close();
    }
}

//! A server: hosts actors, measures them, and lets its local elasticity manager decide about them. One of the servers of a
//! cluster without a supervisor also runs the global manager.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use elastin_cluster::{Class, Heard, Planted, Role, Roster};
use elastin_control::{Config, GemCommand, GemEvent, Lem, LemCommand, LemEvent, NewActor};
use elastin_policy::Policy;
use elastin_runtime::Interest;
use elastin_stores::MeasuredState;
use elastin_types::{ActorId, NodeId, ServerState, Snapshot};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::App;
use crate::address::{ClusterAddress, Stores};
use crate::admin::{AdminError, AdminReply, Asker, Errand, Moves, Office, answer, moved};
use crate::control::{global_manager, members_of, new_actor, sleep_until_due};
use crate::evacuation::Evacuation;
use crate::global::Global;
use crate::member::{Below, Member, MemberOptions};
use crate::metrics::{LastPeriod, ServerMetrics};
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::usage::{Capacity, UsageMeter};
use crate::wire::{self, ControlFrame};

/// How long a server that was told to go lets its actors finish and be saved: well within what its supervisor waits for it.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a server that was told to end may go without a single actor leaving it. Then it leaves with what it has.
const STUCK_TIME_MAX: Duration = Duration::from_secs(60);
/// How often a server that is being emptied looks whether it is.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How long a server stays when it is empty, so that those who send to where an actor was learn where it is.
const LINGER: Duration = Duration::from_secs(1);

/// What a server is started with.
pub(crate) struct NodeOptions {
    /// Where its cluster is.
    pub(crate) address: ClusterAddress,
    /// The server's name.
    pub(crate) name: String,
    /// The share of a core that it may use.
    pub(crate) cpu_share: Option<f64>,
    /// Where it accepts connections.
    pub(crate) listen: SocketAddr,
    /// Where others reach it, if that is not where it listens.
    pub(crate) advertise: Option<SocketAddr>,
    /// How long it may be silent before it counts as dead.
    pub(crate) lease_ttl: Duration,
    /// The elasticity period of the cluster, if this is its first server.
    pub(crate) period: Duration,
    /// What it does wrong on purpose.
    pub(crate) planted: Planted,
    /// What the network can carry, in megabits per second.
    pub(crate) net_mbit: Option<f64>,
    /// Where to serve metrics.
    pub(crate) metrics: Option<SocketAddr>,
}

/// Runs a server until its supervisor or a signal ends it or it is no longer a member.
pub(crate) async fn run(app: App, options: NodeOptions) -> anyhow::Result<()> {
    let credentials = options.address.credentials(app.cluster_name())?;
    let Stores { coordination, state } = options.address.open(app.cluster_name(), &credentials).await?;
    let settings = if options.address.is_supervised() {
        ClusterSettings::load(&coordination).await?
    } else {
        let settings = ClusterSettings::of_first_server(app.policy_source().clone(), options.period);
        settings.load_or_store(&coordination).await?
    };
    let policy = Arc::new(app.compile(&settings.policy)?);
    #[cfg(feature = "planted-bugs")]
    let state = if options.planted.unfenced {
        crate::unfenced::Unfenced::over(state)
    } else {
        state
    };
    let state = Arc::new(MeasuredState::new(state));
    let member = MemberOptions {
        planted: options.planted,
        cpu_share: options.cpu_share,
        listen: options.listen,
        advertise: options.advertise,
        lease_ttl: options.lease_ttl,
        ..MemberOptions::new(
            options.name.clone(),
            Role::Server,
            coordination,
            state.clone(),
            credentials.security,
        )
    };
    let member = Member::join(&app, member).await?;
    let (membership, runtime) = (member.membership.clone(), member.runtime.clone());
    let capacity = Capacity::find(options.cpu_share, options.net_mbit);
    let last_period = Arc::new(Mutex::new(LastPeriod::default()));
    let metrics = ServerMetrics {
        name: options.name,
        runtime: member.runtime.clone(),
        peer: member.peer.clone(),
        state,
        last_period: Arc::clone(&last_period),
    };
    let _metrics = metrics.serve(options.metrics).await;
    let mut server = Server::new(member, policy, settings, capacity, options.address.is_supervised());
    server.last_period = last_period;
    let supervisor_ended = async {
        match options.address.is_supervised() {
            true => supervisor_ended().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = server.run() => ended?,
        () = supervisor_ended => {}
    }
    if !runtime.shutdown(SHUTDOWN_TIME_MAX).await {
        tracing::warn!("some actors did not come to an end in time");
    }
    membership.leave().await;
    Ok(())
}

/// Ends when standard input does: it is a pipe that the supervisor holds.
async fn supervisor_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// Who asked for a move.
enum Asked {
    Manager(elastin_control::MoveId),
    Operator(Asker),
    Evacuation(ActorId),
}

/// What a manager on this server has to know.
enum Told {
    Local(LemEvent),
    Global(GemEvent),
}

/// A server on its way out.
struct Leaving {
    evacuation: Evacuation,
    /// When it leaves with whatever it has, unless another actor leaves before.
    at_the_latest: Instant,
    /// Since when it has been empty.
    empty_since: Option<Instant>,
}

struct Server {
    member: Member,
    lem: Lem,
    /// The global manager, while it is this server's turn to run it.
    global: Option<Global>,
    status: Arc<Mutex<Status>>,
    policy: Arc<Policy>,
    settings: ClusterSettings,
    usage: UsageMeter,
    last_period: Arc<Mutex<LastPeriod>>,
    roster: Roster,
    office: Office,
    moves: Moves<Asked>,
    /// The actors that wait for a place, by the number of the asking.
    placements: std::collections::HashMap<u64, ActorId>,
    placements_asked: u64,
    /// What came before the first roster: the driver knows who is there a moment earlier than this task.
    early: Vec<Below>,
    supervised: bool,
    leaving: Option<Leaving>,
    left: bool,
}

impl Server {
    fn new(
        member: Member,
        policy: Arc<Policy>,
        settings: ClusterSettings,
        capacity: Capacity,
        supervised: bool,
    ) -> Self {
        let config = Config {
            node: member.me,
            policy: Arc::clone(&policy),
            settings: settings.elasticity(),
            seed: member.me.0,
        };
        Server {
            lem: Lem::new(config),
            global: None,
            status: Arc::default(),
            policy,
            settings,
            usage: UsageMeter::start(capacity),
            last_period: Arc::default(),
            roster: Roster::default(),
            office: Office::default(),
            moves: Moves::default(),
            placements: Default::default(),
            placements_asked: 0,
            early: Vec::new(),
            supervised,
            leaving: None,
            left: false,
            member,
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let (mut below, mut heard) = self.member.take_ears();
        let mut periods = interval(self.policy.period().unwrap_or(self.settings.period));
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once; nothing is measured yet.
        periods.tick().await;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut evicted = false;
        while !self.left {
            let local = self.lem.next_timer();
            let global = self.global.as_ref().and_then(Global::next_timer);
            let due = local.into_iter().chain(global).min();
            let due = due.map(|at| at.since(self.member.runtime.now()));
            tokio::select! {
                _ = periods.tick() => self.end_period(),
                Some(below) = below.recv() => self.hear(below),
                heard = heard.recv(), if !evicted => match heard {
                    Some(Heard::Roster(roster)) => self.meet(roster),
                    // A bug on purpose: it goes on when it is no longer a member.
                    Some(Heard::Evicted) | None if self.member.planted.is_unfenced() => evicted = true,
                    Some(Heard::Evicted) | None => anyhow::bail!("this server is no longer a member of its cluster"),
                },
                () = sleep_until_due(due) => self.tell([Told::Local(LemEvent::Tick), Told::Global(GemEvent::Tick)]),
                _ = terminate.recv() => self.begin_to_leave(),
                // An interrupt from the keyboard goes to a whole embedded cluster, whose supervisor ends its servers.
                _ = interrupt.recv(), if !self.supervised => self.begin_to_leave(),
                () = tokio::time::sleep(LOOK_AGAIN_AFTER), if self.leaving.is_some() => self.empty(),
            }
        }
        Ok(())
    }

    /// The membership changed.
    fn meet(&mut self, roster: Roster) {
        let is_first = self.roster.members.is_empty();
        let servers = roster.members.iter().filter(|(_, record)| record.role == Role::Server);
        self.status
            .lock()
            .set_servers(servers.map(|(node, record)| (*node, record.name.clone(), record.draining)));
        self.roster = roster;
        self.office.meet(&self.member.peer, &self.roster);
        let me = self.member.me;
        match global_manager(&self.roster) == Some(me) {
            true if self.global.is_none() => {
                tracing::info!("the global elasticity manager runs here now");
                let (policy, status) = (Arc::clone(&self.policy), Arc::clone(&self.status));
                self.global = Some(Global::new(me, policy, &self.settings, status));
            }
            true => {}
            false => self.global = None,
        }
        let members = members_of(&self.roster);
        let (local, global) = (LemEvent::Members(members.clone()), GemEvent::Members(members));
        self.tell([Told::Global(global), Told::Local(local)]);
        if is_first {
            // So that the global manager knows of this server before a whole period has passed.
            self.end_period();
            for below in std::mem::take(&mut self.early) {
                self.hear(below);
            }
        }
    }

    fn end_period(&mut self) {
        let draining = self
            .roster
            .members
            .get(&self.member.me)
            .is_some_and(|record| record.draining);
        let interest = match self.lem.wants_all_actors() {
            true => Interest::All,
            false => Interest::Types {
                busy: self.policy.interest().kinds.clone(),
                always: self.policy.kinds_while_idle(),
            },
        };
        let measured = self.member.runtime.snapshot(&interest);
        let mut server = measured.server;
        server.state = if draining {
            ServerState::Draining
        } else {
            ServerState::Active
        };
        server.usage.cpu = self.usage.processor(server.usage.cpu.used);
        server.usage.mem = self.usage.memory();
        server.usage.net = self.usage.network(self.member.peer.traffic_bytes());
        *self.last_period.lock() = LastPeriod {
            server: Some(server.clone()),
            mailbox_messages: measured.mailbox_messages,
        };
        tracing::debug!(?server, "a period has ended");
        for actor in &measured.actors {
            tracing::trace!(?actor, "in this period");
        }
        let at = self.member.runtime.now();
        let snapshot = Snapshot {
            at,
            period: measured.period,
            servers: vec![server],
            actors: measured.actors,
        };
        self.tell([Told::Local(LemEvent::Period(snapshot))]);
    }

    fn hear(&mut self, below: Below) {
        if self.roster.members.is_empty() {
            return self.early.push(below);
        }
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
                let errand = self.office.hear(&self.member.peer, &self.roster, from, &payload);
                self.run_errand(errand);
            }
            Below::MoveEnded { id, result } => match self.moves.end(id) {
                Some(Asked::Manager(id)) => {
                    let result = result.map(drop).map_err(|error| error.to_string());
                    self.tell([Told::Local(LemEvent::MoveEnded { id, result })]);
                }
                Some(Asked::Operator(asker)) => answer(&self.member.peer, asker, moved(result)),
                Some(Asked::Evacuation(actor)) => {
                    if let Some(leaving) = &mut self.leaving {
                        leaving.evacuation.ended(&actor);
                        if result.is_ok() {
                            leaving.at_the_latest = Instant::now() + STUCK_TIME_MAX;
                        }
                    }
                    self.evacuate();
                }
                None => {}
            },
            Below::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                self.placements_asked += 1;
                let request = self.placements_asked;
                self.placements.insert(request, actor.clone());
                let new = new_actor(&self.roster, actor, caller, caller_node);
                self.tell([Told::Local(LemEvent::Place { request, new })]);
            }
        }
    }

    fn hear_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) if message.is_for_global() => {
                self.tell([Told::Global(GemEvent::Message { from, message })]);
            }
            ControlFrame::Message(message) => self.tell([Told::Local(LemEvent::Message { from, message })]),
            ControlFrame::Relayed { from, message } => self.tell([Told::Local(LemEvent::Message { from, message })]),
            ControlFrame::ToHost { actor, message } => {
                if let Some(host) = self.member.peer.host_of(&actor) {
                    self.send_control(host, &ControlFrame::Relayed { from, message });
                }
            }
            ControlFrame::Record(decision) => self.status.lock().decided(*decision),
            ControlFrame::Leave => tracing::warn!(%from, "a frame for a supervisor came to a server"),
        }
    }

    fn run_errand(&mut self, errand: Option<Errand>) {
        match errand {
            Some(Errand::Move { actor, to, asker }) => {
                let id = self.moves.begin(Asked::Operator(asker));
                self.member.peer.move_actor(id, actor, to);
            }
            Some(Errand::Drain { asker }) => {
                self.begin_to_leave();
                answer(&self.member.peer, asker, Ok(AdminReply::Done));
            }
            Some(Errand::Status { asker }) => {
                let result = match self.global.is_some() {
                    true => Ok(AdminReply::Servers(self.status.lock().servers())),
                    false => Err(AdminError::WrongNode),
                };
                answer(&self.member.peer, asker, result);
            }
            None => {}
        }
    }

    /// Tells the managers on this server something, and all that follows from it.
    fn tell(&mut self, first: impl IntoIterator<Item = Told>) {
        let mut told: std::collections::VecDeque<Told> = first.into_iter().collect();
        while let Some(next) = told.pop_front() {
            let now = self.member.runtime.now();
            match next {
                Told::Local(event) => {
                    let mut commands = Vec::new();
                    self.lem.handle(now, event, &mut commands);
                    told.extend(commands.into_iter().filter_map(|command| self.carry_out(command)));
                }
                Told::Global(event) => {
                    let commands = self.global.as_mut().map(|global| global.tell(now, event));
                    let commands = commands.into_iter().flatten();
                    told.extend(commands.filter_map(|command| self.carry_out_global(command)));
                }
            }
        }
    }

    /// Carries out a command; what it means to a manager on this server comes back.
    fn carry_out(&mut self, command: LemCommand) -> Option<Told> {
        match command {
            LemCommand::Send { to, message } => return self.send_message(to, message),
            LemCommand::SendToHost { actor, message } => self.send_to_host(actor, message),
            LemCommand::Move { id, actor, to } => {
                let id = self.moves.begin(Asked::Manager(id));
                self.member.peer.move_actor(id, actor, to);
            }
            LemCommand::Record(decision) => self.keep_record(decision),
            LemCommand::Leave => self.leave(),
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

    fn carry_out_global(&mut self, command: GemCommand) -> Option<Told> {
        match command {
            GemCommand::Send { to, message } => return self.send_message(to, message),
            GemCommand::AddServers { request, .. } => {
                let reason = "nobody here can start servers".to_owned();
                return Some(Told::Global(GemEvent::ProvisionFailed { request, reason }));
            }
            GemCommand::RemoveServer { node } => self.member.membership.drain(node, true),
            GemCommand::Record(_) | GemCommand::Measured(_) => unreachable!("kept by the manager's driver"),
        }
        None
    }

    fn send_message(&mut self, to: NodeId, message: elastin_control::ControlMessage) -> Option<Told> {
        if to != self.member.me {
            self.send_control(to, &ControlFrame::Message(message));
            return None;
        }
        let from = to;
        Some(if message.is_for_global() {
            Told::Global(GemEvent::Message { from, message })
        } else {
            Told::Local(LemEvent::Message { from, message })
        })
    }

    /// Passes a message on to the local manager of the server that an actor is on, by way of the directory.
    fn send_to_host(&mut self, actor: ActorId, message: elastin_control::ControlMessage) {
        let Some(view) = self.member.peer.view() else { return };
        let directory = view.directory_of(&actor).node;
        let frame = ControlFrame::ToHost { actor, message };
        if directory == self.member.me {
            self.hear_control(directory, frame);
        } else {
            self.send_control(directory, &frame);
        }
    }

    fn keep_record(&self, decision: Box<elastin_control::Decision>) {
        match global_manager(&self.roster) {
            Some(node) if node == self.member.me => self.status.lock().decided(*decision),
            Some(node) => self.send_control(node, &ControlFrame::Record(decision)),
            None => tracing::warn!("there is nobody to keep a record"),
        }
    }

    /// Begins to empty this server, after which it leaves.
    fn begin_to_leave(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        tracing::info!("this server is being emptied, and leaves then");
        self.member.membership.drain(self.member.me, true);
        self.leaving = Some(Leaving {
            evacuation: Evacuation::default(),
            at_the_latest: Instant::now() + STUCK_TIME_MAX,
            empty_since: None,
        });
        self.empty();
    }

    /// Moves on with emptying this server, and leaves when it is done.
    fn empty(&mut self) {
        self.evacuate();
        let is_empty = self.is_empty();
        let Some(leaving) = &mut self.leaving else { return };
        let now = Instant::now();
        leaving.empty_since = match is_empty {
            true => leaving.empty_since.or(Some(now)),
            false => None,
        };
        let lingered = leaving.empty_since.is_some_and(|since| now - since >= LINGER);
        if lingered || now >= leaving.at_the_latest {
            if !is_empty {
                tracing::warn!("this server leaves although it is not empty");
            }
            self.leave();
        }
    }

    /// Whether there is no actor here and no part of the directory.
    fn is_empty(&self) -> bool {
        let owns = |view: elastin_protocol::View| view.slots.is_owner(self.member.me);
        let evacuated = self.leaving.as_ref().is_none_or(|leaving| leaving.evacuation.is_done());
        evacuated && self.member.runtime.activations().is_empty() && !self.member.peer.view().is_some_and(owns)
    }

    /// Sends away as many actors as may be under way at a time. Where to is for the local manager to say, as if they were
    /// new.
    fn evacuate(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        let runtime = &self.member.runtime;
        let everybody = || runtime.activations().into_iter().map(|(actor, _)| actor).collect();
        for actor in leaving.evacuation.next(everybody) {
            let new = NewActor {
                actor: actor.clone(),
                caller: None,
                caller_node: None,
            };
            match self
                .lem
                .place(&new)
                .filter(|placement| placement.node != self.member.me)
            {
                Some(placement) => {
                    let id = self.moves.begin(Asked::Evacuation(actor.clone()));
                    self.member.peer.move_actor(id, actor, placement.node);
                }
                None => leaving.evacuation.ended(&actor),
            }
        }
    }

    fn leave(&mut self) {
        match self.roster.supervisor() {
            Some(supervisor) => self.send_control(supervisor, &ControlFrame::Leave),
            None => self.left = true,
        }
    }

    fn send_control(&self, to: NodeId, frame: &ControlFrame) {
        if let Err(error) = self.member.peer.send(to, Class::Control, &wire::encode(frame)) {
            // Every question between managers has a time limit, so a lost frame costs a period at most.
            tracing::warn!(%to, %error, "a frame was dropped");
        }
    }
}

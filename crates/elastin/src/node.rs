//! A server: hosts actors, measures them, and lets its local elasticity manager decide about them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use elastin_cluster::{Class, Heard, Role, Roster};
use elastin_control::{Config, Lem, LemCommand, LemEvent};
use elastin_policy::Policy;
use elastin_protocol::MoveId;
use elastin_protocol::store::{Coordination, StateStore};
use elastin_runtime::Interest;
use elastin_stores::served::StoreClient;
use elastin_types::{NodeId, ServerState, Snapshot};
use tokio::time::{MissedTickBehavior, interval};

use crate::App;
use crate::control::{members_of, sleep_until_due};
use crate::member::{Below, Member, MemberOptions};
use crate::settings::ClusterSettings;
use crate::usage::UsageMeter;
use crate::wire::{self, AdminFrame, ControlFrame};

/// How long a server that was told to go lets its actors finish and be saved: well within what its supervisor waits for it.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// What a server is started with.
pub(crate) struct NodeOptions {
    /// Where the supervisor serves coordination and state.
    pub(crate) join: SocketAddr,
    /// The server's name.
    pub(crate) name: String,
    /// The share of a core that it may use.
    pub(crate) cpu_share: Option<f64>,
}

/// Runs a server until its supervisor ends it or it is no longer a member.
pub(crate) async fn run(app: App, options: NodeOptions) -> anyhow::Result<()> {
    let store = Arc::new(StoreClient::connect(options.join).await?);
    let coordination: Arc<dyn Coordination> = store.clone();
    let state: Arc<dyn StateStore> = store;
    let settings = ClusterSettings::load(&coordination).await?;
    let policy = Arc::new(app.compile(&settings.policy)?);
    let member = MemberOptions {
        name: options.name,
        role: Role::Server,
        coordination,
        state,
        cpu_share: options.cpu_share,
    };
    let member = Member::join(&app, member).await?;
    let supervisor_ended = supervisor_ended();
    let (membership, runtime) = (member.membership.clone(), member.runtime.clone());
    let server = Server::new(member, policy, &settings);
    tokio::select! {
        ended = server.run() => ended,
        () = supervisor_ended => {
            if !runtime.shutdown(SHUTDOWN_TIME_MAX).await {
                tracing::warn!("some actors did not come to an end in time");
            }
            membership.leave().await;
            Ok(())
        }
    }
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
    Operator { node: NodeId, request: u64 },
}

struct Server {
    member: Member,
    lem: Lem,
    policy: Arc<Policy>,
    usage: UsageMeter,
    roster: Roster,
    moves: HashMap<MoveId, Asked>,
    moves_begun: u64,
    period: Duration,
}

impl Server {
    fn new(member: Member, policy: Arc<Policy>, settings: &ClusterSettings) -> Self {
        let config = Config {
            node: member.me,
            policy: Arc::clone(&policy),
            settings: settings.elasticity(),
            seed: member.me.0,
        };
        Server {
            lem: Lem::new(config),
            period: policy.period().unwrap_or(settings.period),
            policy,
            usage: UsageMeter::start(),
            roster: Roster::default(),
            moves: HashMap::new(),
            moves_begun: 0,
            member,
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let mut periods = interval(self.period);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once; nothing is measured yet.
        periods.tick().await;
        loop {
            let due = self.lem.next_timer().map(|at| at.since(self.member.runtime.now()));
            tokio::select! {
                _ = periods.tick() => self.end_period(),
                Some(below) = self.member.below.recv() => self.hear(below),
                heard = self.member.heard.recv() => match heard {
                    Some(Heard::Roster(roster)) => {
                        let is_first = self.roster.members.is_empty();
                        let members = members_of(&roster);
                        self.roster = roster;
                        self.tell(LemEvent::Members(members));
                        if is_first {
                            // So that the global manager knows of this server before a whole period has passed.
                            self.end_period();
                        }
                    }
                    Some(Heard::Evicted) | None => anyhow::bail!("this server is no longer a member of its cluster"),
                },
                () = sleep_until_due(due) => self.tell(LemEvent::Tick),
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
            false => Interest::Types(self.policy.interest().kinds.clone()),
        };
        let measured = self.member.runtime.snapshot(&interest);
        let mut server = measured.server;
        server.state = if draining {
            ServerState::Draining
        } else {
            ServerState::Active
        };
        server.usage.mem = self.usage.memory();
        server.usage.net = self.usage.network(self.member.peer.traffic_bytes());
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
        self.tell(LemEvent::Period(snapshot));
    }

    fn hear(&mut self, below: Below) {
        match below {
            Below::Frame {
                from,
                class: Class::Control,
                payload,
            } => match wire::decode(from, &payload) {
                Some(ControlFrame::Message(message)) => self.tell(LemEvent::Message { from, message }),
                Some(ControlFrame::Relayed { from, message }) => self.tell(LemEvent::Message { from, message }),
                Some(other) => tracing::warn!(%from, ?other, "a frame for the supervisor came to a server"),
                None => {}
            },
            Below::Frame { from, payload, .. } => {
                if let Some(AdminFrame::Move { request, actor, to }) = wire::decode(from, &payload) {
                    let id = self.next_move(Asked::Operator { node: from, request });
                    self.member.peer.move_actor(id, actor, to);
                }
            }
            Below::MoveEnded { id, result } => match self.moves.remove(&id) {
                Some(Asked::Manager(id)) => {
                    let result = result.map(drop).map_err(|error| error.to_string());
                    self.tell(LemEvent::MoveEnded { id, result });
                }
                Some(Asked::Operator { node, request }) => {
                    let ended = AdminFrame::MoveEnded {
                        request,
                        result: result.map(drop),
                    };
                    self.send(node, Class::Admin, &wire::encode(&ended));
                }
                None => {}
            },
            // Only the owner of the directory is asked.
            Below::NeedPlacement { actor, .. } => self.member.peer.placed(actor, Some(self.member.me)),
        }
    }

    fn tell(&mut self, event: LemEvent) {
        let mut commands = Vec::new();
        self.lem.handle(self.member.runtime.now(), event, &mut commands);
        for command in commands {
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: LemCommand) {
        match command {
            LemCommand::Send { to, message } if to == self.member.me => {
                self.tell(LemEvent::Message { from: to, message });
            }
            LemCommand::Send { to, message } => self.send_control(to, &ControlFrame::Message(message)),
            LemCommand::SendToHost { actor, message } => self.to_supervisor(&ControlFrame::ToHost { actor, message }),
            LemCommand::Move { id, actor, to } => {
                let id = self.next_move(Asked::Manager(id));
                self.member.peer.move_actor(id, actor, to);
            }
            LemCommand::Record(decision) => self.to_supervisor(&ControlFrame::Record(decision)),
            LemCommand::Leave => self.to_supervisor(&ControlFrame::Leave),
            // Nobody on this node asks: the directory's owner places new actors.
            LemCommand::Placed { .. } => {}
        }
    }

    fn next_move(&mut self, asked: Asked) -> MoveId {
        self.moves_begun += 1;
        let id = MoveId(self.moves_begun);
        self.moves.insert(id, asked);
        id
    }

    fn to_supervisor(&self, frame: &ControlFrame) {
        match self.roster.supervisor() {
            Some(supervisor) => self.send_control(supervisor, frame),
            None => tracing::warn!("there is no supervisor to tell"),
        }
    }

    fn send_control(&self, to: NodeId, frame: &ControlFrame) {
        self.send(to, Class::Control, &wire::encode(frame));
    }

    fn send(&self, to: NodeId, class: Class, payload: &[u8]) {
        if let Err(error) = self.member.peer.send(to, class, payload) {
            // Every question between managers has a time limit, so a lost frame costs a period at most.
            tracing::warn!(%to, %error, "a frame was dropped");
        }
    }
}

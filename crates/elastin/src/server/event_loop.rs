//! What a server has, and what it hears.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_cluster::{Class, MembershipUpdate, Role, Roster};
use elastin_control::{Config, GemEvent, Lem, LemEvent};
use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, Time};
use parking_lot::Mutex;

use super::leaving::{LOOK_AGAIN_AFTER, Leaving};
use super::managers::ManagerEvent;
use crate::admin::{AdminError, AdminReply, AdminService, AdminTask, Asker, Moves, answer, moved};
use crate::elasticity::control::{global_manager, members_of, new_actor, sleep_until_due};
use crate::elasticity::global::Global;
use crate::member::{Member, NodeEvent};
use crate::metrics::LastPeriod;
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::usage::{Capacity, UsageMeter};
use crate::wire::{self, ControlFrame};

/// Who asked for a move.
pub(super) enum Asked {
    Manager(elastin_control::MoveId),
    Operator(Asker),
    Evacuation(ActorId),
}

/// A server at work.
pub(super) struct Server {
    pub(super) member: Member,
    pub(super) lem: Lem,
    /// The global manager, while it is this server's turn to run it.
    pub(super) global: Option<Global>,
    pub(super) status: Arc<Mutex<Status>>,
    pub(super) policy: Arc<Policy>,
    pub(super) settings: ClusterSettings,
    pub(super) usage: UsageMeter,
    period: Duration,
    /// When the present period does.
    period_ends: Time,
    pub(super) last_period: Arc<Mutex<LastPeriod>>,
    pub(super) roster: Roster,
    pub(super) admin: AdminService,
    pub(super) moves: Moves<Asked>,
    /// The actors that wait for a place, by the number of the asking.
    pub(super) placements: HashMap<u64, ActorId>,
    pub(super) placements_asked: u64,
    pub(super) leaving: Option<Leaving>,
    pub(super) left: bool,
}

impl Server {
    pub(super) fn new(member: Member, policy: Arc<Policy>, settings: ClusterSettings, capacity: Capacity) -> Self {
        let config = Config {
            node: member.me,
            policy: Arc::clone(&policy),
            settings: settings.elasticity(),
            seed: member.me.0,
        };
        let period = policy.period().unwrap_or(settings.period);
        Server {
            period,
            period_ends: member.runtime.now() + period,
            lem: Lem::new(config),
            global: None,
            status: Arc::default(),
            policy,
            settings,
            usage: UsageMeter::start(capacity),
            last_period: Arc::default(),
            roster: Roster::default(),
            admin: AdminService::default(),
            moves: Moves::default(),
            placements: Default::default(),
            placements_asked: 0,
            leaving: None,
            left: false,
            member,
        }
    }

    /// Runs until it has left, which it begins to do when it is told to. At first it knows of these members.
    pub(super) async fn run(mut self, first: Roster, told_to_leave: impl Future<Output = ()>) -> anyhow::Result<()> {
        let mut told_to_leave = std::pin::pin!(told_to_leave);
        self.meet(first);
        // So that the global manager knows of this server before a whole period has passed.
        self.end_period();
        let (mut below, mut heard) = self.member.take_ears();
        let sleeper = self.member.runtime.clock().sleeper("the elasticity managers");
        let (mut evicted, mut told) = (false, false);
        while !self.left {
            tokio::select! {
                Some(below) = below.recv() => self.hear(below),
                heard = heard.recv(), if !evicted => match heard {
                    Some(MembershipUpdate::Roster(roster)) => self.meet(roster),
                    // A bug on purpose: it goes on when it is no longer a member.
                    Some(MembershipUpdate::Evicted) | None if self.member.planted.ignores_lease() => evicted = true,
                    Some(MembershipUpdate::Evicted) | None => anyhow::bail!("this server is no longer a member of its cluster"),
                },
                () = sleep_until_due(&sleeper, self.wakes_at()) => self.wake(),
                () = &mut told_to_leave, if !told => {
                    told = true;
                    self.end();
                }
            }
        }
        Ok(())
    }

    /// When something is due that nobody tells it of.
    fn wakes_at(&self) -> Option<Time> {
        let look_again = self
            .leaving
            .as_ref()
            .map(|_| self.member.runtime.now() + LOOK_AGAIN_AFTER);
        let times = [Some(self.period_ends), self.tick_due(), look_again];
        times.into_iter().flatten().min()
    }

    /// When a manager here wants to know that time has passed.
    fn tick_due(&self) -> Option<Time> {
        let global = self.global.as_ref().and_then(Global::next_timer);
        self.lem.next_timer().into_iter().chain(global).min()
    }

    /// Does what is due.
    fn wake(&mut self) {
        let now = self.member.runtime.now();
        if now >= self.period_ends {
            self.end_period();
            self.period_ends = now + self.period;
        }
        if self.tick_due().is_some_and(|due| now >= due) {
            self.tell([
                ManagerEvent::Local(LemEvent::Tick),
                ManagerEvent::Global(GemEvent::Tick),
            ]);
        }
        if self.leaving.is_some() {
            self.empty();
        }
    }

    /// The membership changed.
    fn meet(&mut self, roster: Roster) {
        let servers = roster.members.iter().filter(|(_, record)| record.role == Role::Server);
        self.status
            .lock()
            .set_servers(servers.map(|(node, record)| (*node, record.name.clone(), record.draining)));
        self.roster = roster;
        self.admin.meet(&self.member.peer, &self.roster);
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
        self.tell([ManagerEvent::Global(global), ManagerEvent::Local(local)]);
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
            NodeEvent::MoveEnded { id, result } => match self.moves.end(id) {
                Some(Asked::Manager(id)) => {
                    let result = result.map(drop).map_err(|error| error.to_string());
                    self.tell([ManagerEvent::Local(LemEvent::MoveEnded { id, result })]);
                }
                Some(Asked::Operator(asker)) => answer(&self.member.peer, asker, moved(result)),
                Some(Asked::Evacuation(actor)) => {
                    self.evacuated(&actor, result.is_ok());
                }
                None => {}
            },
            NodeEvent::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                self.placements_asked += 1;
                let request = self.placements_asked;
                self.placements.insert(request, actor.clone());
                let new = new_actor(&self.roster, actor, caller, caller_node);
                self.tell([ManagerEvent::Local(LemEvent::Place { request, new })]);
            }
        }
    }

    pub(super) fn hear_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) if message.is_for_global() => {
                self.tell([ManagerEvent::Global(GemEvent::Message { from, message })]);
            }
            ControlFrame::Message(message) => self.tell([ManagerEvent::Local(LemEvent::Message { from, message })]),
            ControlFrame::Relayed { from, message } => {
                self.tell([ManagerEvent::Local(LemEvent::Message { from, message })])
            }
            ControlFrame::ToHost { actor, message } => {
                if let Some(host) = self.member.peer.host_of(&actor) {
                    self.send_control(host, &ControlFrame::Relayed { from, message });
                }
            }
            ControlFrame::Record(decision) => self.status.lock().decided(*decision),
            ControlFrame::Leave => tracing::warn!(%from, "a frame for a supervisor came to a server"),
        }
    }

    fn run_errand(&mut self, task: Option<AdminTask>) {
        match task {
            Some(AdminTask::Move { actor, to, asker }) => {
                let id = self.moves.begin(Asked::Operator(asker));
                self.member.peer.move_actor(id, actor, to);
            }
            Some(AdminTask::Drain { asker }) => {
                self.drain();
                answer(&self.member.peer, asker, Ok(AdminReply::Done));
            }
            Some(AdminTask::Status { asker }) => {
                let result = match self.global.is_some() {
                    true => Ok(AdminReply::Servers(self.status.lock().servers())),
                    false => Err(AdminError::WrongNode),
                };
                answer(&self.member.peer, asker, result);
            }
            None => {}
        }
    }
}

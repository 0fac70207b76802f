//! A server's state and its event loop.

use std::sync::Arc;
use std::time::Duration;

use elastin_cluster::{Class, MembershipUpdate, Roster};
use elastin_control::{Config, GemEvent, Lem, LemEvent};
use elastin_policy::Policy;
use elastin_types::{ActorId, NodeId, Time};
use parking_lot::Mutex;

use super::leaving::{Leaving, POLL_INTERVAL};
use super::managers::ManagerEvent;
use crate::admin::{AdminError, AdminReply, AdminService, AdminTask, Moves, Requester, answer, move_result};
use crate::elasticity::control::{global_manager, members_of, new_actor, relay_to_host, sleep_until_due};
use crate::elasticity::global::Global;
use crate::elasticity::placements::Placements;
use crate::member::{Member, NodeEvent};
use crate::metrics::LastPeriod;
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::usage::{Capacity, UsageMeter};
use crate::wire::{self, ControlFrame};

/// The origin of a move in flight, which is notified of its end.
pub(super) enum MoveOrigin {
    Manager(elastin_control::MoveId),
    Operator(Requester),
    Evacuation(ActorId),
}

/// A server at work.
pub(super) struct Server {
    pub(super) member: Member,
    pub(super) lem: Lem,
    /// The global manager, while this server is the one that runs it.
    pub(super) global: Option<Global>,
    pub(super) status: Arc<Mutex<Status>>,
    pub(super) policy: Arc<Policy>,
    pub(super) settings: ClusterSettings,
    pub(super) usage: UsageMeter,
    period: Duration,
    /// The end of the current period.
    period_ends: Time,
    pub(super) last_period: Arc<Mutex<LastPeriod>>,
    pub(super) roster: Roster,
    pub(super) admin: AdminService,
    pub(super) moves: Moves<MoveOrigin>,
    pub(super) placements: Placements,
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
            placements: Placements::default(),
            leaving: None,
            left: false,
            member,
        }
    }

    /// Runs until the server has left, which `leave_signal` starts. `first` is the roster that it starts with.
    pub(super) async fn run(mut self, first: Roster, leave_signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let mut leave_signal = std::pin::pin!(leave_signal);
        self.set_roster(first);
        // The global manager should know this server before a whole period has passed.
        self.end_period();
        let (mut events, mut membership_updates) = self.member.take_receivers();
        let sleeper = self.member.runtime.clock().sleeper("the elasticity managers");
        let (mut evicted, mut leave_requested) = (false, false);
        while !self.left {
            tokio::select! {
                Some(event) = events.recv() => self.handle_event(event),
                update = membership_updates.recv(), if !evicted => match update {
                    Some(MembershipUpdate::Roster(roster)) => self.set_roster(roster),
                    // The planted bug: keep serving after the eviction.
                    Some(MembershipUpdate::Evicted) | None if self.member.planted.ignores_lease() => evicted = true,
                    Some(MembershipUpdate::Evicted) | None => anyhow::bail!("this server is no longer a member of its cluster"),
                },
                () = sleep_until_due(&sleeper, self.wakes_at()) => self.wake(),
                () = &mut leave_signal, if !leave_requested => {
                    leave_requested = true;
                    self.end();
                }
            }
        }
        Ok(())
    }

    /// The next time at which the loop must wake without an event.
    fn wakes_at(&self) -> Option<Time> {
        let poll = self.leaving.as_ref().map(|_| self.member.runtime.now() + POLL_INTERVAL);
        let times = [Some(self.period_ends), self.tick_due(), poll];
        times.into_iter().flatten().min()
    }

    /// The next timer of the managers on this server.
    fn tick_due(&self) -> Option<Time> {
        let global = self.global.as_ref().and_then(Global::next_timer);
        self.lem.next_timer().into_iter().chain(global).min()
    }

    fn wake(&mut self) {
        let now = self.member.runtime.now();
        if now >= self.period_ends {
            self.end_period();
            self.period_ends = now + self.period;
        }
        if self.tick_due().is_some_and(|due| now >= due) {
            self.dispatch([
                ManagerEvent::Local(LemEvent::Tick),
                ManagerEvent::Global(GemEvent::Tick),
            ]);
        }
        if self.leaving.is_some() {
            self.advance_drain();
        }
    }

    /// Applies a new roster, and starts or stops the global manager accordingly.
    fn set_roster(&mut self, roster: Roster) {
        self.status.lock().set_roster(&roster);
        self.roster = roster;
        self.admin.roster_changed(&self.member.driver, &self.roster);
        let me = self.member.me;
        match global_manager(&self.roster) == Some(me) {
            true if self.global.is_none() => {
                tracing::info!("this server runs the global elasticity manager now");
                let (policy, status) = (Arc::clone(&self.policy), Arc::clone(&self.status));
                self.global = Some(Global::new(me, policy, &self.settings, status));
            }
            true => {}
            false => self.global = None,
        }
        let members = members_of(&self.roster);
        let (local, global) = (LemEvent::Members(members.clone()), GemEvent::Members(members));
        self.dispatch([ManagerEvent::Global(global), ManagerEvent::Local(local)]);
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
            NodeEvent::MoveEnded { id, result } => match self.moves.end(id) {
                Some(MoveOrigin::Manager(id)) => {
                    let result = result.map(drop).map_err(|error| error.to_string());
                    self.dispatch([ManagerEvent::Local(LemEvent::MoveEnded { id, result })]);
                }
                Some(MoveOrigin::Operator(requester)) => answer(&self.member.driver, requester, move_result(result)),
                Some(MoveOrigin::Evacuation(actor)) => {
                    self.evacuated(&actor, result.is_ok());
                }
                None => {}
            },
            NodeEvent::NeedPlacement {
                actor,
                caller,
                caller_node,
            } => {
                let request = self.placements.request(actor.clone());
                let new = new_actor(&self.roster, actor, caller, caller_node);
                self.dispatch([ManagerEvent::Local(LemEvent::Place { request, new })]);
            }
        }
    }

    pub(super) fn handle_control(&mut self, from: NodeId, frame: ControlFrame) {
        match frame {
            ControlFrame::Message(message) if message.is_for_global() => {
                self.dispatch([ManagerEvent::Global(GemEvent::Message { from, message })]);
            }
            ControlFrame::Message(message) => self.dispatch([ManagerEvent::Local(LemEvent::Message { from, message })]),
            ControlFrame::Relayed { from, message } => {
                self.dispatch([ManagerEvent::Local(LemEvent::Message { from, message })])
            }
            ControlFrame::ToHost { actor, message } => relay_to_host(&self.member.driver, from, &actor, message),
            ControlFrame::Record(decision) => self.status.lock().record_decision(*decision),
            ControlFrame::Leave => tracing::warn!(%from, "ignoring a supervisor-only frame"),
        }
    }

    fn run_admin_task(&mut self, task: Option<AdminTask>) {
        match task {
            Some(AdminTask::Move { actor, to, requester }) => {
                let id = self.moves.begin(MoveOrigin::Operator(requester));
                self.member.driver.move_actor(id, actor, to);
            }
            Some(AdminTask::Drain { requester }) => {
                self.drain();
                answer(&self.member.driver, requester, Ok(AdminReply::Done));
            }
            Some(AdminTask::Status { requester }) => {
                let result = match self.global.is_some() {
                    true => Ok(AdminReply::Servers(self.status.lock().servers())),
                    false => Err(AdminError::WrongNode),
                };
                answer(&self.member.driver, requester, result);
            }
            None => {}
        }
    }
}

//! Drives a node's [`Membership`](elastin_protocol::membership::Membership): carries its requests to the coordination
//! service and its decisions to the node. It makes no decisions itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use elastin_clock::{Clock, Sleeper};
use elastin_protocol::membership::{
    CLUSTER_PREFIX, MemberRecord, Membership as MembershipMachine, MembershipCommand, MembershipEnd, MembershipEvent,
    Roster,
};
use elastin_protocol::store::{Coordination, WatchGuard};
use elastin_types::NodeId;
use tokio::sync::{mpsc, watch};

use crate::NodeDriver;

/// A change of the membership.
#[derive(Clone, Debug)]
pub enum MembershipUpdate {
    /// The cluster's members changed.
    Roster(Roster),
    /// This node was evicted: its lease expired, or a panic has stopped it. Its process must end, or rejoin with a new id.
    Evicted,
}

/// A node that has joined the cluster and is not active yet.
pub struct Membership {
    driver: Driver,
    me: NodeId,
}

/// Requests membership changes, of this node and of others. A request is executed as soon as coordination is reachable, and
/// discarded when this node's own membership ends.
#[derive(Clone)]
pub struct MembershipHandle {
    events: mpsc::UnboundedSender<MembershipEvent>,
    ended: watch::Receiver<bool>,
}

impl MembershipHandle {
    /// Begins to drain a member, or cancels it. A draining member gets no new actors.
    pub fn drain(&self, node: NodeId, draining: bool) {
        self.submit(MembershipEvent::Drain { node, draining });
    }

    /// Ends the membership of a node whose process has certainly ended, so that no member waits for its lease to expire.
    pub fn stopped(&self, node: NodeId) {
        self.submit(MembershipEvent::Stopped { node });
    }

    /// Leaves the cluster: the node stops acting at once, and other members need not wait for its lease to expire.
    pub async fn leave(&self) {
        self.submit(MembershipEvent::Leave);
        // An error means that the driver has ended, and the membership with it.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    fn submit(&self, event: MembershipEvent) {
        // Fails only after the membership has ended, when events no longer matter.
        let _ = self.events.send(event);
    }
}

impl Membership {
    /// Joins the cluster. From now on the lease must be kept alive, which [`Membership::attend`] does. The lease is on this clock,
    /// which must be the runtime's.
    pub async fn join(
        coordination: Arc<dyn Coordination>,
        record: MemberRecord,
        ttl: Duration,
        clock: &Clock,
    ) -> Result<Membership, MembershipEnd> {
        let mut driver = Driver::new(coordination, record, ttl, clock);
        loop {
            match driver.next().await {
                MembershipCommand::Joined { node } => return Ok(Membership { driver, me: node }),
                MembershipCommand::Ended(reason) => return Err(reason),
                // A node that has not joined has nothing to fence.
                _ => {}
            }
        }
    }

    /// The id of this node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Activates the node: keeps the lease alive, and passes leases and views to `node`, until the membership ends or all handles
    /// are dropped.
    pub fn attend(mut self, node: NodeDriver) -> (MembershipHandle, mpsc::UnboundedReceiver<MembershipUpdate>) {
        let (updates, update_receiver) = mpsc::unbounded_channel();
        let (ends, ended) = watch::channel(false);
        let handle = MembershipHandle {
            events: self.driver.events.clone(),
            ended,
        };
        tokio::spawn(async move {
            // The first roster is deferred until the node has a view, and can reach the members.
            let mut deferred_roster = Some(Roster::default());
            let mut failed = false;
            while !ends.is_closed() {
                let command = tokio::select! {
                    command = self.driver.next() => command,
                    () = node.failed(), if !failed => {
                        failed = true;
                        // A stopped node does not act, so no member need wait for its lease to expire.
                        let _ = self.driver.events.send(MembershipEvent::Leave);
                        continue;
                    }
                };
                match command {
                    MembershipCommand::MayActUntil(until) => node.may_act_until(until),
                    MembershipCommand::Fence => node.fence(),
                    MembershipCommand::Roster(roster) => {
                        node.learn(&roster);
                        match &mut deferred_roster {
                            Some(latest) => *latest = roster,
                            None => drop(updates.send(MembershipUpdate::Roster(roster))),
                        }
                    }
                    MembershipCommand::View(view) => {
                        node.enter(view);
                        if let Some(roster) = deferred_roster.take() {
                            let _ = updates.send(MembershipUpdate::Roster(roster));
                        }
                    }
                    MembershipCommand::Ended(reason) => {
                        if reason != MembershipEnd::Left {
                            tracing::warn!("{reason}");
                        }
                        if failed || reason != MembershipEnd::Left {
                            let _ = updates.send(MembershipUpdate::Evicted);
                        }
                        break;
                    }
                    other => tracing::debug!(?other, "ignoring a membership command"),
                }
            }
            let _ = ends.send(true);
        });
        (handle, update_receiver)
    }
}

/// Runs the membership's state machine on the node's clock.
struct Driver {
    coordination: Arc<dyn Coordination>,
    machine: MembershipMachine,
    commands: VecDeque<MembershipCommand>,
    events: mpsc::UnboundedSender<MembershipEvent>,
    event_receiver: mpsc::UnboundedReceiver<MembershipEvent>,
    watch: Option<WatchGuard>,
    sleeper: Sleeper,
}

impl Driver {
    fn new(coordination: Arc<dyn Coordination>, record: MemberRecord, ttl: Duration, clock: &Clock) -> Self {
        let (events, event_receiver) = mpsc::unbounded_channel();
        let mut commands = Vec::new();
        Self {
            coordination,
            machine: MembershipMachine::join(clock.now(), record, ttl, &mut commands),
            commands: commands.into(),
            events,
            event_receiver,
            watch: None,
            sleeper: clock.sleeper("the membership"),
        }
    }

    /// The next command that is not for the coordination service.
    async fn next(&mut self) -> MembershipCommand {
        loop {
            match self.commands.pop_front() {
                Some(MembershipCommand::Submit { request, what }) => {
                    let events = self.events.clone();
                    let done = move |result| drop(events.send(MembershipEvent::Answered { request, result }));
                    self.coordination.submit(what, Box::new(done));
                }
                Some(MembershipCommand::Watch { watch, from }) => {
                    let events = self.events.clone();
                    let sink = move |batch| drop(events.send(MembershipEvent::Watched { watch, batch }));
                    self.watch = Some(self.coordination.watch(CLUSTER_PREFIX.into(), from, Box::new(sink)));
                }
                Some(command) => return command,
                None => {
                    let event = self.event().await;
                    let mut commands = Vec::new();
                    self.machine.handle(self.sleeper.clock().now(), event, &mut commands);
                    self.commands.extend(commands);
                }
            }
        }
    }

    async fn event(&mut self) -> MembershipEvent {
        tokio::select! {
            () = self.sleeper.sleep_until(self.machine.next_timer()) => MembershipEvent::Timer,
            Some(event) = self.event_receiver.recv() => event,
        }
    }
}

//! Drives a node's [`Membership`](elastin_protocol::membership::Membership): carries its requests to the coordination
//! service and its decisions to the node. Nothing is decided here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use elastin_clock::{Clock, Sleeper};
use elastin_protocol::membership::{
    CLUSTER_PREFIX, MemberRecord, Membership as SerialExecutor, MembershipCommand, MembershipEnd, MembershipEvent,
    Roster,
};
use elastin_protocol::store::{Coordination, WatchGuard};
use elastin_types::NodeId;
use tokio::sync::{mpsc, watch};

use crate::NodeDriver;

/// What a member hears.
#[derive(Clone, Debug)]
pub enum MembershipUpdate {
    /// The cluster changed.
    Roster(Roster),
    /// This member is one no longer, though it did not want to leave: its lease ran out, or a panic has stopped it. It must end; a
    /// new life needs a new id.
    Evicted,
}

/// A node that has joined, and does not take part yet.
pub struct Membership {
    driver: Driver,
    me: NodeId,
}

/// Speaks for a member: what it wants of its membership and of other members'. Wishes are carried out as soon as
/// coordination can be reached, and forgotten when the member's own membership ends.
#[derive(Clone)]
pub struct MembershipHandle {
    events: mpsc::UnboundedSender<MembershipEvent>,
    ended: watch::Receiver<bool>,
}

impl MembershipHandle {
    /// Has a member emptied, or no longer: it takes no new actors.
    pub fn drain(&self, node: NodeId, draining: bool) {
        self.tell(MembershipEvent::Drain { node, draining });
    }

    /// Ends the membership of a node whose process is certainly gone, so that nobody waits for its lease to run out.
    pub fn stopped(&self, node: NodeId) {
        self.tell(MembershipEvent::Stopped { node });
    }

    /// Leaves: the node stops acting at once, and the others need not wait for its lease to run out.
    pub async fn leave(&self) {
        self.tell(MembershipEvent::Leave);
        // An error says that the driver is gone, which is an end as well.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    fn tell(&self, event: MembershipEvent) {
        // A membership that has ended wants nothing any more.
        let _ = self.events.send(event);
    }
}

impl Membership {
    /// Joins the cluster: from now on the node must show signs of life, which [`Membership::attend`] does. Its lease is on this
    /// clock, which must be that of its runtime.
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
                MembershipCommand::Ended(why) => return Err(why),
                // Before a node has joined it does nothing that could be fenced.
                _ => {}
            }
        }
    }

    /// This life of the node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Takes part: keeps the lease alive, tells `peer` until when it may act and who is there, until the membership ends or
    /// nobody has a handle on it.
    pub fn attend(mut self, peer: NodeDriver) -> (MembershipHandle, mpsc::UnboundedReceiver<MembershipUpdate>) {
        let (heard, hears) = mpsc::unbounded_channel();
        let (ends, ended) = watch::channel(false);
        let handle = MembershipHandle {
            events: self.driver.events.clone(),
            ended,
        };
        tokio::spawn(async move {
            // Nobody is told who is there before this node can reach them.
            let mut waits = Some(Roster::default());
            let mut failed = false;
            while !ends.is_closed() {
                let command = tokio::select! {
                    command = self.driver.next() => command,
                    () = peer.failed(), if !failed => {
                        failed = true;
                        // It does nothing any more, so nobody need wait for its lease to run out.
                        let _ = self.driver.events.send(MembershipEvent::Leave);
                        continue;
                    }
                };
                match command {
                    MembershipCommand::MayActUntil(until) => peer.may_act_until(until),
                    MembershipCommand::Fence => peer.fence(),
                    MembershipCommand::Roster(roster) => {
                        peer.learn(&roster);
                        match &mut waits {
                            Some(latest) => *latest = roster,
                            None => drop(heard.send(MembershipUpdate::Roster(roster))),
                        }
                    }
                    MembershipCommand::View(view) => {
                        peer.enter(view);
                        if let Some(roster) = waits.take() {
                            let _ = heard.send(MembershipUpdate::Roster(roster));
                        }
                    }
                    MembershipCommand::Ended(why) => {
                        if why != MembershipEnd::Left {
                            tracing::warn!("{why}");
                        }
                        if failed || why != MembershipEnd::Left {
                            let _ = heard.send(MembershipUpdate::Evicted);
                        }
                        break;
                    }
                    other => tracing::debug!(?other, "nothing to do"),
                }
            }
            let _ = ends.send(true);
        });
        (handle, hears)
    }
}

/// Runs the executor on the node's clock.
struct Driver {
    coordination: Arc<dyn Coordination>,
    serial_executor: SerialExecutor,
    commands: VecDeque<MembershipCommand>,
    events: mpsc::UnboundedSender<MembershipEvent>,
    happens: mpsc::UnboundedReceiver<MembershipEvent>,
    watch: Option<WatchGuard>,
    sleeper: Sleeper,
}

impl Driver {
    fn new(coordination: Arc<dyn Coordination>, record: MemberRecord, ttl: Duration, clock: &Clock) -> Self {
        let (events, happens) = mpsc::unbounded_channel();
        let mut commands = Vec::new();
        Self {
            coordination,
            serial_executor: SerialExecutor::join(clock.now(), record, ttl, &mut commands),
            commands: commands.into(),
            events,
            happens,
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
                    self.serial_executor
                        .handle(self.sleeper.clock().now(), event, &mut commands);
                    self.commands.extend(commands);
                }
            }
        }
    }

    async fn event(&mut self) -> MembershipEvent {
        tokio::select! {
            () = self.sleeper.sleep_until(self.serial_executor.next_timer()) => MembershipEvent::Timer,
            Some(event) = self.happens.recv() => event,
        }
    }
}

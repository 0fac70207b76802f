//! One process's part in the cluster.
//!
//! The parts, each an `impl Node` in a file of its own: `calls` (outcomes for callers here),
//! `sending` (paths to actors), `hosting` and `granting` (actors here), `moving_out` and
//! `releasing`, `group_moves`, `many_moves`, `moving_in`, `settling` (when a moved actor may run), `repeating`
//! (calls that are made again),
//! `measures` (what is counted), `parting` (how a node goes),
//! `directory` (slots owned here), `slot_changes` (how they change hands), `ending` (what becomes of a client's calls).

mod calls;
mod dedup;
mod directory;
mod evicted;
mod frames;
mod grants;
mod hosting;
mod leave;
mod measures;
mod migration;
mod routing;
mod sizes;
mod slot_transfer;
mod view_change;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, NotDelivered, SlotEpoch, Time};

use crate::collections::host_map::HostMap;
use crate::dedup_table::DedupTable;
use crate::hosted::Hosted;
use crate::route::Route;
use crate::sessions::Sessions;
use crate::slots::OwnedSlot;
use crate::timers::Due;
use crate::{Command, Event, Map, MoveId, NodeConfig, Slot, View};

pub use measures::{NodeMeasures, TurnedAway};
pub use sizes::TableSizes;

use calls::PendingCall;
use dedup::OpenRequest;
use leave::DrainPhase;
use migration::queue::WaitingMove;
use migration::settle::SettlingMove;

/// One process's part in the cluster: it finds actors for its callers, hosts actors, moves them, and keeps the directory
/// slots that the view gives it.
#[derive(Debug)]
pub struct Node {
    hosts: bool,
    sessions: Sessions,
    /// Calls of callers here, by sequence number.
    calls: Map<u64, PendingCall>,
    routes: Map<ActorId, Route>,
    /// The routes on which something is under way; some others may be among them for a while.
    busy_routes: BTreeSet<ActorId>,
    /// Routes to look at when slots get new owners: nobody could be asked. Some others may be among them for a while.
    blocked_routes: BTreeSet<ActorId>,
    /// Routes to look at when this peer acknowledges something.
    routes_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    hosted: HostMap<Hosted>,
    /// What the actors here know of requests that may come again.
    requests: DedupTable,
    /// DedupTable of callers here that may be made again.
    open_requests: BTreeMap<u64, OpenRequest>,
    last_request: u64,
    /// Messages that came through the directory and were delivered in the last event, and may bounce.
    landing: Vec<(ActorId, CallId, ActivationEpoch)>,
    /// Hosted actors whose held messages may still have to go elsewhere.
    limbo: BTreeSet<ActorId>,
    /// Actors that went from here, and may not run at their new place until what they sent from here has settled.
    settling: BTreeMap<ActorId, SettlingMove>,
    /// Actors that move away from here, before the decision; bounded by [`Limits::moves_out`](crate::Limits).
    moving_out: BTreeSet<ActorId>,
    /// The groups that move away from here together and are not frozen yet, by the first move of each.
    groups: BTreeMap<MoveId, Vec<ActorId>>,
    /// Moves that wait to begin; bounded by [`Limits::moves_waiting`](crate::Limits).
    moves_waiting: VecDeque<WaitingMove>,
    /// Until when none of them begins, because a target had too much to do.
    moves_paused_until: Option<Time>,
    /// Of the moves under way, the ones whose image goes on when this peer acknowledges something.
    stages_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    /// Actors that move to here, before they are active; bounded by [`Limits::moves_in`](crate::Limits).
    moving_in: BTreeSet<ActorId>,
    /// For slots whose new owner has asked what is here: the owner's epoch. Earlier owners are not listened to.
    slot_floors: BTreeMap<Slot, SlotEpoch>,
    /// The slots that the view gives to this node.
    slots: BTreeMap<Slot, OwnedSlot>,
    /// Those of them that are not open.
    closed_slots: BTreeSet<Slot>,
    /// The owner's epoch for which this node has last said what it knows of a slot.
    handed_over: BTreeMap<Slot, SlotEpoch>,
    /// Slots for which everybody is about to be asked what is there.
    recovery_wanted: BTreeSet<Slot>,
    turned_away: TurnedAway,
    /// How often peers said what they may not send.
    refused: u64,
    /// Whether this node is about to go.
    parting: DrainPhase,
    /// Peers that are about to go: no path leads to them.
    parting_peers: BTreeSet<NodeId>,
    /// Whether this node is no longer a member.
    evicted: bool,
}

impl Node {
    /// A node that knows nobody yet: it needs a [`View`] before it can do anything.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            hosts: config.hosts,
            sessions: Sessions::new(config.me, config.limits),
            calls: Map::default(),
            routes: Map::default(),
            busy_routes: BTreeSet::new(),
            blocked_routes: BTreeSet::new(),
            routes_waiting: BTreeMap::new(),
            hosted: HostMap::default(),
            requests: DedupTable::default(),
            open_requests: BTreeMap::new(),
            last_request: 0,
            landing: Vec::new(),
            limbo: BTreeSet::new(),
            settling: BTreeMap::new(),
            moving_out: BTreeSet::new(),
            groups: BTreeMap::new(),
            moves_waiting: VecDeque::new(),
            moves_paused_until: None,
            stages_waiting: BTreeMap::new(),
            moving_in: BTreeSet::new(),
            slot_floors: BTreeMap::new(),
            slots: BTreeMap::new(),
            closed_slots: BTreeSet::new(),
            handed_over: BTreeMap::new(),
            recovery_wanted: BTreeSet::new(),
            turned_away: TurnedAway::default(),
            refused: 0,
            parting: DrainPhase::No,
            parting_peers: BTreeSet::new(),
            evicted: false,
        }
    }

    /// Plants a bug, to see whether it is found.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.sessions.planted.bug = Some(bug);
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.sessions.me
    }

    /// The cluster as this node knows it.
    pub fn view(&self) -> Option<&View> {
        self.sessions.view.as_ref()
    }

    /// When [`Event::Timer`] is wanted next.
    pub fn next_timer(&self) -> Option<Time> {
        self.sessions.timers.next()
    }

    /// The activations on this node that take mail, in no particular order.
    pub fn active(&self) -> impl Iterator<Item = (ActorId, ActivationEpoch)> {
        let active = self.hosted.iter().filter(|(_, hosted)| hosted.phase().takes_mail());
        active.map(|(actor, hosted)| (actor, hosted.epoch()))
    }

    /// Takes in one event and appends what is to be done to `out`. `now` never goes back.
    ///
    /// A panic is a bug here, and leaves the node in no defined state: its driver must stop it for good.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.sessions.now = self.sessions.now.max(now);
        std::mem::swap(&mut self.sessions.out, out);
        self.sessions.look_at_lease(matches!(event, Event::Timer));
        if !matches!(event, Event::Bounced { .. }) {
            self.sessions.nothing_bounces();
            self.report_all_landed();
        }
        self.dispatch(event);
        self.begin_waiting_moves();
        self.drain_loopback();
        self.tell_settled();
        std::mem::swap(&mut self.sessions.out, out);
    }

    fn dispatch(&mut self, event: Event) {
        if self.evicted {
            return self.dispatch_evicted(event);
        }
        match event {
            Event::Send { message } => self.on_send(message),
            Event::Settle { request } => self.on_settle(request),
            Event::GiveUp { call } => {
                self.forget_call(call);
            }
            Event::Frame { from, frame } => self.on_frame(from, frame),
            Event::LinkUp { peer } => self.sessions.link_up(peer),
            Event::LinkDown { peer } => self.sessions.link_down(peer),
            Event::View(view) => self.on_view(view),
            Event::MayActUntil(until) => self.sessions.may_act_until(until),
            Event::Activated { actor, epoch, result } => self.on_activated(actor, epoch, result),
            Event::Frozen { actor, epoch, image } => self.on_frozen(actor, epoch, image),
            Event::Released { actor, epoch, queue } => self.on_released(actor, epoch, queue),
            Event::Passivated { actor, epoch } => self.on_passivated(actor, epoch),
            Event::Bounced { epoch, message } => self.on_bounced(epoch, message),
            Event::Replied { call, outcome } => self.on_replied(call, outcome),
            Event::Move { id, actor, to } => self.on_move(id, actor, to),
            Event::Moves(moves) => self.on_moves(moves),
            Event::MoveTogether(moves) => self.on_move_together(moves),
            Event::Placed { actor, node } => self.on_placed(actor, node),
            Event::Part => self.on_part(),
            Event::Evicted => self.on_evicted(),
            Event::Timer => self.on_timer(),
        }
    }

    /// A caller here sends.
    fn on_send(&mut self, mut message: Arc<Message>) {
        if message.header.request.is_some() {
            self.stamp(Arc::make_mut(&mut message));
        }
        self.expect_outcome(&message);
        if self.sessions.view.is_none() {
            return self.turn_away(message, CallError::NotDelivered(NotDelivered::Unreachable));
        }
        self.send_own(message);
    }

    /// Sends a message of a caller here: to an actor that is here, unless earlier ones are still on another path.
    fn send_own(&mut self, message: Arc<Message>) {
        let here = match self.hosted.get(&message.target) {
            Some(hosted) => hosted.phase().holds_own() || !self.routes.contains_key(&message.target),
            None => false,
        };
        if here {
            self.accept_own(message);
        } else {
            self.send_along_route(message);
        }
    }

    fn on_timer(&mut self) {
        while let Some((at, due)) = self.sessions.timers.take_due(self.sessions.now) {
            match due {
                Due::Call(sequence) => self.call_is_late(sequence, at),
                Due::Acknowledge(peer) => self.sessions.acknowledge_due(peer),
                Due::Retransmit(peer) => self.sessions.retransmit_due(peer),
                Due::Move(actor) => self.move_is_late(&actor, at),
                Due::Stage(actor) => self.stage(&actor),
                // Every event does these first or last.
                Due::MovesAgain | Due::Landing => {}
                Due::Expected(actor, epoch) => self.give_up_grant(&actor, epoch),
                Due::Tombstone(actor) => self.tombstone_due(&actor, at),
            }
        }
    }
}

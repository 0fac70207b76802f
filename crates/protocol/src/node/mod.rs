//! One process's part in the cluster.
//!
//! Each module holds one `impl Node`:
//!
//! - `calls`: outcomes for callers on this node.
//! - `routing`: paths to actors on other nodes.
//! - `hosting`, `grants`: activations on this node, from the directory's grant to their end.
//! - `migration`: moves of activations, source and target side.
//! - `dedup`: calls of one request, of which an activation runs one.
//! - `directory`, `slot_transfer`: the directory slots owned here, and their transfer between owners.
//! - `frames`: inbound frames and loopback.
//! - `view_change`: membership changes and dead nodes.
//! - `leave`: orderly departure of a drained node.
//! - `evicted`: outcomes of a client's calls after its membership ended.
//! - `measures`, `sizes`: counters and table sizes.

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

pub use measures::{NodeMeasures, Rejections};
pub use sizes::TableSizes;

use calls::PendingCall;
use dedup::OpenRequest;
use leave::LeavePhase;
use migration::queue::WaitingMove;
use migration::settle::SettlingMove;

/// One process's part in the cluster.
///
/// It routes its callers' messages to actors, hosts and moves activations, and serves the directory slots that the view
/// assigns to it.
#[derive(Debug)]
pub struct Node {
    hosts: bool,
    sessions: Sessions,
    /// Calls of local callers, by sequence number.
    calls: Map<u64, PendingCall>,
    routes: Map<ActorId, Route>,
    /// Routes with messages in flight or pending changes. May also contain quiet routes until the next cleanup.
    busy_routes: BTreeSet<ActorId>,
    /// Routes whose directory owner was dead, to be retried when slots get new owners. May contain unblocked routes for
    /// a while.
    blocked_routes: BTreeSet<ActorId>,
    /// Routes to re-check when this peer acknowledges a frame.
    routes_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    hosted: HostMap<Hosted>,
    /// Deduplication records of the actors hosted here.
    requests: DedupTable,
    /// Requests of local callers whose calls may still be retried.
    open_requests: BTreeMap<u64, OpenRequest>,
    last_request: u64,
    /// Messages that arrived through the directory, were delivered in the last event, and may still bounce.
    landing: Vec<(ActorId, CallId, ActivationEpoch)>,
    /// Hosted actors whose held messages may still have to be sent elsewhere.
    limbo: BTreeSet<ActorId>,
    /// Actors moved away that may not run at their target until the messages they sent from here have settled.
    settling: BTreeMap<ActorId, SettlingMove>,
    /// Actors moving away whose move is undecided; bounded by [`Limits::moves_out`](crate::Limits).
    moving_out: BTreeSet<ActorId>,
    /// Groups that move away together and are not fully frozen yet, keyed by the first move of each.
    groups: BTreeMap<MoveId, Vec<ActorId>>,
    /// Moves queued to begin; bounded by [`Limits::moves_waiting`](crate::Limits).
    moves_waiting: VecDeque<WaitingMove>,
    /// Queued moves do not begin before this time, because a target was overloaded.
    moves_paused_until: Option<Time>,
    /// Actors whose image transfer resumes when this peer acknowledges a frame.
    stages_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    /// Actors moving here that are not active yet; bounded by [`Limits::moves_in`](crate::Limits).
    moving_in: BTreeSet<ActorId>,
    /// Highest owner epoch that has recovered each slot from this node. Messages from earlier owners are ignored.
    slot_floors: BTreeMap<Slot, SlotEpoch>,
    /// Slots that the view assigns to this node.
    slots: BTreeMap<Slot, OwnedSlot>,
    /// The subset of `slots` that is not open.
    closed_slots: BTreeSet<Slot>,
    /// Owner epoch to which this node last handed over each slot.
    handed_over: BTreeMap<Slot, SlotEpoch>,
    /// Slots whose recovery requests to all hosts are still to be sent.
    recovery_wanted: BTreeSet<Slot>,
    rejections: Rejections,
    /// Number of bodies rejected because their sender was not authorized to send them.
    refused: u64,
    /// Progress of this node's departure.
    leave_phase: LeavePhase,
    /// Peers that are leaving: no path may lead to them.
    leaving_peers: BTreeSet<NodeId>,
    /// Whether this node has lost its membership.
    evicted: bool,
}

impl Node {
    /// Creates a node without a [`View`]: it can do nothing until it receives one.
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
            rejections: Rejections::default(),
            refused: 0,
            leave_phase: LeavePhase::No,
            leaving_peers: BTreeSet::new(),
            evicted: false,
        }
    }

    /// Plants a bug, so that a test can check that the simulator finds it.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.sessions.planted.bug = Some(bug);
    }

    /// This node's id.
    pub fn me(&self) -> NodeId {
        self.sessions.me
    }

    /// The newest view of the cluster that this node has received.
    pub fn view(&self) -> Option<&View> {
        self.sessions.view.as_ref()
    }

    /// The time at which the driver must send the next [`Event::Timer`].
    pub fn next_timer(&self) -> Option<Time> {
        self.sessions.timers.next()
    }

    /// The activations on this node that accept messages, in no particular order.
    pub fn active(&self) -> impl Iterator<Item = (ActorId, ActivationEpoch)> {
        let active = self.hosted.iter().filter(|(_, hosted)| hosted.phase().takes_mail());
        active.map(|(actor, hosted)| (actor, hosted.epoch()))
    }

    /// Handles one event and appends the resulting commands to `out`. `now` never decreases.
    ///
    /// A panic indicates a bug in this crate and leaves the node in an undefined state: the driver must stop it for
    /// good.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.sessions.now = self.sessions.now.max(now);
        std::mem::swap(&mut self.sessions.out, out);
        self.sessions.check_lease(matches!(event, Event::Timer));
        if !matches!(event, Event::Bounced { .. }) {
            self.sessions.settle_deliveries();
            self.report_all_landed();
        }
        self.dispatch(event);
        self.begin_waiting_moves();
        self.drain_loopback();
        self.report_settled();
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
            Event::Leave => self.on_leave(),
            Event::Evicted => self.on_evicted(),
            Event::Timer => self.on_timer(),
        }
    }

    /// Handles a message sent by a local caller.
    fn on_send(&mut self, mut message: Arc<Message>) {
        if message.header.request.is_some() {
            self.stamp(Arc::make_mut(&mut message));
        }
        self.expect_outcome(&message);
        if self.sessions.view.is_none() {
            return self.reject(message, CallError::NotDelivered(NotDelivered::Unreachable));
        }
        self.send_own(message);
    }

    /// Sends a message of a local caller. It goes to a local activation unless earlier messages are still on another
    /// path.
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
                Due::Call(sequence) => self.on_call_deadline(sequence, at),
                Due::Acknowledge(peer) => self.sessions.acknowledge_due(peer),
                Due::Retransmit(peer) => self.sessions.retransmit_due(peer),
                Due::Move(actor) => self.on_move_deadline(&actor, at),
                Due::Stage(actor) => self.stage(&actor),
                // Every event handles these, at its start or its end.
                Due::MovesAgain | Due::Landing => {}
                Due::Expected(actor, epoch) => self.give_up_grant(&actor, epoch),
                Due::Tombstone(actor) => self.tombstone_due(&actor, at),
            }
        }
    }
}

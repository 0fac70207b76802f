//! One process's part in the cluster.
//!
//! The parts, each an `impl Node` in a file of its own: `calls` (outcomes for callers here),
//! `sending` (paths to actors), `hosting` (actors here), `moving_out` and
//! `releasing`, `group_moves`, `many_moves`, `moving_in`, `settling` (when a moved actor may run), `repeating`
//! (calls that are made again),
//! `directory` (slots owned here), `slot_changes` (how they change hands).

mod calls;
mod directory;
mod group_moves;
mod hosting;
mod many_moves;
mod moving_in;
mod moving_out;
mod releasing;
mod repeating;
mod sending;
mod settling;
mod slot_changes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, NotDelivered, SlotEpoch, Time};

use crate::hosted::Hosted;
use crate::links::Links;
use crate::requests::Requests;
use crate::route::Route;
use crate::slots::OwnedSlot;
use crate::timers::Due;
use crate::{Body, Command, DirectoryBody, Event, Frame, Map, MoveId, NodeConfig, Slot, View};

use calls::PendingCall;
use many_moves::WaitingMove;
use settling::SettlingMove;

/// One process's part in the cluster: it finds actors for its callers, hosts actors, moves them, and keeps the directory
/// slots that the view gives it.
#[derive(Debug)]
pub struct Node {
    hosts: bool,
    links: Links,
    /// Calls of callers here, by sequence number.
    calls: Map<u64, PendingCall>,
    routes: Map<ActorId, Route>,
    /// The routes on which something is under way; some others may be among them for a while.
    busy_routes: BTreeSet<ActorId>,
    /// Routes to look at when slots get new owners: nobody could be asked. Some others may be among them for a while.
    blocked_routes: BTreeSet<ActorId>,
    /// Routes to look at when this peer acknowledges something.
    routes_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    hosted: Map<ActorId, Hosted>,
    /// What the actors here know of requests that may come again.
    requests: Requests,
    /// Requests of callers here that may be made again.
    open_requests: BTreeSet<u64>,
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
}

/// How many entries a node's tables have: what a test for bounded memory looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Calls that wait for an outcome.
    pub calls: usize,
    /// Places of actors that are remembered.
    pub routes: usize,
    /// Routes that can't change now.
    pub unsettled: usize,
    /// Actors that are, were or will be here.
    pub hosted: usize,
    /// Messages held for actors.
    pub held: usize,
    /// Messages held for the one actor that has most.
    pub held_most: usize,
    /// Requests that actors here remember.
    pub requests: usize,
    /// Frames not acknowledged.
    pub unacknowledged: usize,
    /// Directory entries.
    pub entries: usize,
    /// The bytes that they take, the actors' ids included (what a long key has beyond its id is not).
    pub entry_bytes: usize,
    /// Slots that this node owns.
    pub owned_slots: usize,
    /// Slots that this node owns and that are not open.
    pub closed_slots: usize,
    /// Moves away from this node that wait to begin.
    pub moves_waiting: usize,
    /// Moves away from this node that are not decided.
    pub moves_out: usize,
    /// Moves to this node that have not arrived.
    pub moves_in: usize,
}

impl Node {
    /// A node that knows nobody yet: it needs a [`View`] before it can do anything.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            hosts: config.hosts,
            links: Links::new(config.me, config.limits),
            calls: Map::default(),
            routes: Map::default(),
            busy_routes: BTreeSet::new(),
            blocked_routes: BTreeSet::new(),
            routes_waiting: BTreeMap::new(),
            hosted: Map::default(),
            requests: Requests::default(),
            open_requests: BTreeSet::new(),
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
        }
    }

    /// Plants a bug, to see whether it is found.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: crate::Bug) {
        self.links.planted.bug = Some(bug);
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.links.me
    }

    /// The cluster as this node knows it.
    pub fn view(&self) -> Option<&View> {
        self.links.view.as_ref()
    }

    /// When [`Event::Timer`] is wanted next.
    pub fn next_timer(&self) -> Option<Time> {
        self.links.timers.next()
    }

    /// The activations on this node that take mail, in no particular order.
    pub fn active(&self) -> impl Iterator<Item = (&ActorId, ActivationEpoch)> {
        let active = self.hosted.iter().filter(|(_, hosted)| hosted.phase.takes_mail());
        active.map(|(actor, hosted)| (actor, hosted.epoch))
    }

    /// How large the tables are.
    pub fn table_sizes(&self) -> TableSizes {
        let unsettled = |route: &&Route| !route.is_quiet();
        let hosted = self.hosted.values().map(|hosted| hosted.held.len());
        let routes = self.routes.values().map(|route| route.held.len());
        TableSizes {
            calls: self.calls.len(),
            routes: self.routes.len(),
            unsettled: self.routes.values().filter(unsettled).count(),
            hosted: self.hosted.len(),
            held: self.hosted.values().map(|hosted| hosted.held.len()).sum::<usize>()
                + self.routes.values().map(|route| route.waiting().count()).sum::<usize>(),
            held_most: hosted.chain(routes).max().unwrap_or(0),
            requests: self.requests.len(),
            unacknowledged: self.links.unacknowledged().map(|(_, bodies)| bodies.len()).sum(),
            entries: self.slots.values().map(|slot| slot.entries.len()).sum(),
            entry_bytes: self.slots.values().map(|slot| slot.entries.bytes()).sum(),
            owned_slots: self.slots.len(),
            moves_waiting: self.moves_waiting.len(),
            moves_out: self.moving_out.len(),
            moves_in: self.moving_in.len(),
            closed_slots: self.closed_slots.len(),
        }
    }

    /// Takes in one event and appends what is to be done to `out`. `now` never goes back.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.links.now = self.links.now.max(now);
        std::mem::swap(&mut self.links.out, out);
        self.links.look_at_lease(matches!(event, Event::Timer));
        if !matches!(event, Event::Bounced { .. }) {
            self.links.nothing_bounces();
            self.say_all_landed();
        }
        self.dispatch(event);
        self.begin_waiting_moves();
        self.drain_loopback();
        self.tell_settled();
        std::mem::swap(&mut self.links.out, out);
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Send { message } => self.on_send(message),
            Event::Settle { request } => self.on_settle(request),
            Event::GiveUp { call } => {
                self.forget_call(call);
            }
            Event::Frame { from, frame } => self.on_frame(from, frame),
            Event::LinkUp { peer } => self.links.link_up(peer),
            Event::LinkDown { peer } => self.links.link_down(peer),
            Event::View(view) => self.on_view(view),
            Event::MayActUntil(until) => self.links.may_act_until(until),
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
            Event::Timer => self.on_timer(),
        }
    }

    /// A caller here sends.
    fn on_send(&mut self, mut message: Message) {
        self.stamp(&mut message);
        self.expect_outcome(&message);
        if self.links.view.is_none() {
            return self.turn_away(message, CallError::NotDelivered(NotDelivered::Unreachable));
        }
        self.send_own(message);
    }

    /// Sends a message of a caller here: to an actor that is here, unless earlier ones are still on another path.
    fn send_own(&mut self, message: Message) {
        let here = match self.hosted.get(&message.target) {
            Some(hosted) => hosted.phase.holds_own() || !self.routes.contains_key(&message.target),
            None => false,
        };
        if here {
            self.accept_own(message);
        } else {
            self.send_along_route(message);
        }
    }

    /// Handles what a peer (or this node itself) said.
    fn on_body(&mut self, from: NodeId, body: Body) {
        match body {
            Body::Message { message, epoch: None } => self.ask_directory(message),
            Body::Message {
                message,
                epoch: Some(epoch),
            } => self.accept(message, epoch, None),
            Body::Passed { message, epoch } => self.accept(message, epoch, Some(from)),
            Body::PassedOn { actor, call, to } => self.on_passed_on(actor, call, to),
            Body::Landed { actor, call, epoch } => self.on_landed(from, actor, call, epoch),
            Body::Kept { actor, call, caller } => self.on_kept(&actor, call, caller),
            Body::Returned { message, place } => self.on_returned(from, message, place),
            Body::TurnedAway { actor, call, error } => self.on_turned_away(&actor, call, error),
            Body::Reply { call, outcome } => self.complete(call, outcome),
            Body::Ping => self.links.acknowledge_soon(from),
            Body::ViewIs { .. } => {}
            Body::Move(body) => self.on_move_body(from, body),
            Body::Directory(body) => self.on_directory_body(from, body),
        }
    }

    fn on_directory_body(&mut self, from: NodeId, body: DirectoryBody) {
        match body {
            DirectoryBody::Grant { actor, epoch } => self.on_grant(actor, epoch),
            DirectoryBody::EndNoted { actor, epoch } => self.on_end_noted(actor, epoch),
            DirectoryBody::Decided {
                actor,
                epoch,
                attempt,
                node,
                now,
                by,
            } => {
                if self.is_listened_to(&actor, by) {
                    self.on_decided_out(&actor, epoch, attempt, node, now);
                    self.on_decided_in(&actor, epoch, attempt, node, now);
                }
            }
            DirectoryBody::Recover { slots } => self.on_recover(from, slots),
            DirectoryBody::Ended { .. }
            | DirectoryBody::Commit { .. }
            | DirectoryBody::Abort { .. }
            | DirectoryBody::HandOver { .. }
            | DirectoryBody::Recovered { .. } => self.on_question(from, body),
        }
    }

    /// A frame came from a peer.
    fn on_frame(&mut self, from: NodeId, frame: Frame) {
        if self.links.is_dead(from) {
            return;
        }
        self.links.take_frame(from, frame);
        self.handle_frames(from);
    }

    /// Handles what a peer has said, as far as this node knows the view that it was said in.
    fn handle_frames(&mut self, from: NodeId) {
        while let Some((acknowledged, body)) = self.links.next_frame(from) {
            self.on_body(from, body);
            // INVARIANT: everything that follows from a frame has been said before the frame is acknowledged; that mail
            // bounces follows too, so a frame that delivered some is acknowledged with the next event at the earliest.
            self.drain_loopback();
            if self.links.frame_done(from, acknowledged) {
                self.on_acknowledged(from);
            }
        }
        if self.links.take_later_acknowledgement(from) {
            self.on_acknowledged(from);
        }
        self.links.acknowledge(from);
    }

    /// A peer has handled more of what this node said.
    fn on_acknowledged(&mut self, peer: NodeId) {
        self.settle_routes_waiting_for(peer);
        self.stages_go_on(peer);
        self.drain_loopback();
    }

    /// Handles what this node has said to itself.
    fn drain_loopback(&mut self) {
        while let Some(body) = self.links.next_loopback() {
            self.on_body(self.links.me, body);
            self.links.loopback_done();
            self.settle_routes_waiting_for(self.links.me);
        }
    }

    /// The membership changed. What depended on the dead is settled first, then who owns the directory, then what waited
    /// for a view this new.
    fn on_view(&mut self, view: View) {
        let before = self.links.view.take();
        if let Some(before) = &before
            && before.revision >= view.revision
        {
            self.links.view = Some(before.clone());
            return;
        }
        let known = before.iter().flat_map(|before| before.members.keys().copied());
        // A session may also be with a node that came and went between two views.
        let newcomers = self.links.take_newcomers(view.revision);
        let known: BTreeSet<NodeId> = known.chain(self.links.peers()).chain(newcomers).collect();
        let gone: Vec<NodeId> = known.into_iter().filter(|node| view.is_dead(*node)).collect();
        self.links.view = Some(view);
        for node in &gone {
            self.on_death(*node);
        }
        self.update_slots(before.as_ref());
        if let Some(before) = before {
            self.follow_owners(&before);
        }
        self.drain_loopback();
        for peer in self.links.peers() {
            self.handle_frames(peer);
        }
    }

    /// Slots have new owners: whoever waits for an old one turns to the new one.
    fn follow_owners(&mut self, before: &View) {
        let now = self.links.view().slots.clone();
        let changed = |actor: &ActorId| {
            let slot = Slot::of(actor);
            before.slots.owner(slot) != now.owner(slot)
        };
        self.hosted_follow_owners(changed);
        self.moves_out_follow_owners(changed);
        self.moves_in_follow_owners(changed);
        self.routes_follow_owners();
    }

    /// A node has stopped for good.
    fn on_death(&mut self, node: NodeId) {
        let never_sent = self.links.end(node);
        self.routes_waiting.remove(&node);
        self.requests.forget_origin(node);
        let mine = self.messages_to_send_again(never_sent);
        self.calls_lost_with(node);
        // Routes come first: what moves give back is sent along them.
        self.routes_lost_with(node, mine);
        self.waiting_moves_lost_with(node);
        self.moves_out_lost_with(node);
        self.moves_in_lost_with(node);
        self.grants_lost();
    }

    /// Of what certainly never left, the messages of callers here. What was being passed on for others is lost: its origin
    /// has been told that it went to the dead node, and has given the call its outcome.
    fn messages_to_send_again(&mut self, bodies: Vec<Body>) -> Vec<Message> {
        let mut messages = Vec::new();
        for body in bodies {
            if let Body::Message { message, .. } = body
                && message.header.call.origin == self.links.me
            {
                self.call_is_at(message.header.call, self.links.me);
                messages.push(message);
            }
        }
        messages
    }

    fn on_timer(&mut self) {
        while let Some((at, due)) = self.links.timers.take_due(self.links.now) {
            match due {
                Due::Call(sequence) => self.call_is_late(sequence, at),
                Due::Acknowledge(peer) => self.links.acknowledge_due(peer),
                Due::Retransmit(peer) => self.links.retransmit_due(peer),
                Due::Move(actor) => self.move_is_late(&actor, at),
                // Every event does these first or last.
                Due::MovesAgain | Due::Landing => {}
                Due::Expected(actor, epoch) => self.give_up_grant(&actor, epoch),
                Due::Tombstone(actor) => self.tombstone_due(&actor, at),
            }
        }
    }
}

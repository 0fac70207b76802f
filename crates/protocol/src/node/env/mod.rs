//! The environment of a node's parts: identity, limits, time, view, lease, timers, and everything a part can send to
//! peers, to this node itself and to the driver.

mod deadlines;
mod session;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId, Time};

use crate::bug::{Bug, Planted};
use crate::{Body, Command, Frame, Limits, View};

pub(crate) use timers::Due;

use session::Session;
use timers::Timers;

/// Calls exchanged within this time make further ones likely.
const CALL_BURST_GAP: Duration = Duration::from_millis(10);

/// The environment of a node's parts. Each handler borrows it next to the part of the state that it owns.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) me: NodeId,
    pub(crate) planted: Planted,
    pub(crate) limits: Limits,
    /// Time of the event being handled.
    pub(crate) now: Time,
    /// Commands of the event being handled.
    pub(crate) out: Vec<Command>,
    pub(crate) timers: Timers,
    pub(crate) view: Option<View>,
    /// End of the lease, as far as this node knows.
    good_until: Time,
    /// Whether the lease may have expired: no frame is transmitted.
    fenced: bool,
    sessions: BTreeMap<NodeId, Session>,
    /// Whether the current event delivered messages, which may bounce.
    delivered: bool,
    /// Peers whose frames were handled after such a delivery.
    may_bounce: Vec<NodeId>,
    /// Nodes named by peers that are too new for the view. They may be gone before any view contains them.
    newcomers: BTreeSet<NodeId>,
    /// Bodies that this node has sent to itself, handled in order before the event ends.
    loopback: VecDeque<Body>,
    loopback_sent: u64,
    loopback_handled: u64,
}

impl Env {
    pub(crate) fn new(me: NodeId, limits: Limits) -> Self {
        Self {
            me,
            planted: Planted::default(),
            limits,
            now: Time::ZERO,
            out: Vec::new(),
            timers: Timers::default(),
            view: None,
            good_until: Time::ZERO,
            fenced: true,
            sessions: BTreeMap::new(),
            delivered: false,
            may_bounce: Vec::new(),
            newcomers: BTreeSet::new(),
            loopback: VecDeque::new(),
            loopback_sent: 0,
            loopback_handled: 0,
        }
    }

    /// Emits a command.
    pub(crate) fn command(&mut self, command: Command) {
        self.delivered |= matches!(command, Command::Deliver { .. });
        self.out.push(command);
    }

    /// Settles all delivered messages: an event other than a bounce proves that each has found its activation.
    pub(crate) fn settle_deliveries(&mut self) {
        self.delivered = false;
        while let Some(peer) = self.may_bounce.pop() {
            let Some(session) = self.sessions.get_mut(&peer) else {
                continue;
            };
            session.settle();
            if session.acknowledgement_is_urgent() && !self.fenced {
                session.acknowledge(self.now, &mut self.out);
            }
        }
    }

    /// The view. Only called with one present: frames wait for a view, and sends are rejected without one.
    pub(crate) fn view(&self) -> &View {
        self.view.as_ref().expect("handled only after the first view")
    }

    /// Whether a node has stopped for good.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_dead(node))
    }

    /// The owner of the actor's directory slot.
    pub(crate) fn directory_of(&self, actor: &ActorId) -> NodeId {
        self.view().directory_of(actor).node
    }

    /// Sends a body to a node and returns its frame number. Bodies to dead nodes are dropped.
    pub(crate) fn send(&mut self, to: NodeId, body: Body) -> u64 {
        if to == self.me {
            self.loopback.push_back(body);
            self.loopback_sent += 1;
            return self.loopback_sent;
        }
        if self.is_dead(to) {
            return 0;
        }
        let revision = self.revision();
        let session = self
            .sessions
            .entry(to)
            .or_insert_with(|| Session::new(to, self.planted));
        if session.announced < revision {
            session.announced = revision;
            session.send(self.now, Body::ViewIs { revision }, self.fenced, &mut self.out);
        }
        let number = session.send(self.now, body, self.fenced, &mut self.out);
        if session.retransmit_timer.is_none() {
            session.retransmit_timer = Some(session.acknowledged());
            self.timers
                .set(self.now + self.limits.retransmit_after, Due::Retransmit(to));
        }
        number
    }

    /// Returns a message to its origin: the activation that it was meant for is not here.
    pub(crate) fn return_to_origin(&mut self, message: Arc<Message>, place: Option<(NodeId, ActivationEpoch)>) {
        self.send(message.header.call.origin, Body::Returned { message, place });
    }

    /// The number up to which a node has handled the frames sent to it; `u64::MAX` if it is dead.
    pub(crate) fn acknowledged(&self, node: NodeId) -> u64 {
        if node == self.me {
            return self.loopback_handled;
        }
        match self.sessions.get(&node) {
            Some(session) => session.acknowledged(),
            None if self.is_dead(node) => u64::MAX,
            None => 0,
        }
    }

    /// Whether the node's credit is used up, so that calls must be rejected.
    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.sessions.get(&node).is_some_and(|session| {
            session.unacknowledged().len() >= self.limits.unacknowledged_per_peer
                || session.unacknowledged_bytes() >= self.limits.unacknowledged_bytes_per_peer
        })
    }

    /// Unacknowledged frames to all peers, and their payload bytes.
    pub(crate) fn credit_in_use(&self) -> (usize, usize) {
        self.sessions.values().fold((0, 0), |(frames, bytes), session| {
            (
                frames + session.unacknowledged().len(),
                bytes + session.unacknowledged_bytes(),
            )
        })
    }

    /// Whether calls were recently exchanged with a peer.
    pub(crate) fn carries_calls(&self, peer: NodeId) -> bool {
        let carried_at = self.sessions.get(&peer).and_then(Session::carried_call_at);
        carried_at.is_some_and(|at| self.now.since(at) <= CALL_BURST_GAP)
    }

    /// Peers with their unacknowledged bodies.
    pub(crate) fn unacknowledged(
        &self,
    ) -> impl Iterator<Item = (NodeId, impl ExactSizeIterator<Item = &Body> + DoubleEndedIterator)> {
        self.sessions
            .iter()
            .map(|(peer, session)| (*peer, session.unacknowledged()))
    }

    /// All peers with a session.
    pub(crate) fn peers(&self) -> Vec<NodeId> {
        self.sessions.keys().copied().collect()
    }

    /// Records a node named by a peer, if it is too new for the view.
    pub(crate) fn notice(&mut self, node: NodeId) {
        if node.0 > self.revision() {
            self.newcomers.insert(node);
        }
    }

    /// Takes the nodes that were too new for earlier views and are covered by this revision.
    pub(crate) fn take_newcomers(&mut self, revision: u64) -> BTreeSet<NodeId> {
        let later = self.newcomers.split_off(&NodeId(revision + 1));
        std::mem::replace(&mut self.newcomers, later)
    }

    /// The next body sent to this node itself. [`Env::loopback_done`] must follow when it has been handled.
    pub(crate) fn next_loopback(&mut self) -> Option<Body> {
        self.loopback.pop_front()
    }

    pub(crate) fn loopback_done(&mut self) {
        self.loopback_handled += 1;
    }

    /// Accepts a frame. If its body can be handled at once, returns it as [`Env::next_frame`] would. Otherwise
    /// waiting frames may have become ready.
    pub(crate) fn take_frame(&mut self, from: NodeId, mut frame: Frame) -> Option<(u64, Body)> {
        if let Some(body) = &mut frame.body {
            body.change_clock(frame.sent_at, self.now);
        }
        let known = self.known_revision();
        let session = self
            .sessions
            .entry(from)
            .or_insert_with(|| Session::new(from, self.planted));
        if self.planted.is(Bug::AcknowledgeTooEarly) {
            session.take_acknowledgement(frame.acknowledged);
        }
        session.take(self.now, frame, &self.limits, known)
    }

    /// The next body from a peer that can be handled now, with its acknowledgement. [`Env::frame_done`] must
    /// follow when it has been handled.
    pub(crate) fn next_frame(&mut self, from: NodeId) -> Option<(u64, Body)> {
        let known = self.known_revision();
        self.sessions.get_mut(&from)?.next(known)
    }

    /// Reports a peer that sent an unauthorized body to the driver, once per peer.
    pub(crate) fn refuse(&mut self, from: NodeId) {
        if let Some(session) = self.sessions.get_mut(&from)
            && !std::mem::replace(&mut session.is_refused, true)
        {
            self.out.push(Command::Refused { from });
        }
    }

    /// Marks a frame as handled; returns whether its acknowledgement advances.
    pub(crate) fn frame_done(&mut self, from: NodeId, acknowledged: u64) -> bool {
        let session = self
            .sessions
            .get_mut(&from)
            .expect("a session outlives the handling of its frames");
        let is_news = session.handled(acknowledged);
        if !self.delivered {
            session.settle();
        } else if self.may_bounce.last() != Some(&from) {
            self.may_bounce.push(from);
        }
        is_news
    }

    /// Applies a deferred acknowledgement of a peer; returns whether it advances.
    pub(crate) fn take_later_acknowledgement(&mut self, from: NodeId) -> bool {
        self.sessions
            .get_mut(&from)
            .is_some_and(Session::take_later_acknowledgement)
    }

    /// Acknowledges handled frames: at once if urgent, otherwise within the usual delay.
    pub(crate) fn acknowledge(&mut self, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        if self.fenced || !session.owes_acknowledgement() {
            return;
        }
        if session.acknowledgement_is_urgent() && session.is_settled() {
            session.acknowledge(self.now, &mut self.out);
            return;
        }
        let at = match session.acknowledge_now {
            // As soon as no message of it can bounce any more.
            true => self.now,
            // If it has become urgent by count, the next event sends it.
            false => self.now + self.limits.acknowledge_after,
        };
        if session.acknowledges_at.is_none_or(|earlier| at < earlier) {
            session.acknowledges_at = Some(at);
            self.timers.set(at, Due::Acknowledge(peer));
        }
    }

    /// Marks a peer as waiting for an acknowledgement.
    pub(crate) fn acknowledge_promptly(&mut self, peer: NodeId) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.acknowledge_now = true;
        }
    }

    pub(crate) fn acknowledge_due(&mut self, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        session.acknowledges_at = None;
        if !self.fenced && session.owes_acknowledgement() {
            session.acknowledge(self.now, &mut self.out);
        }
    }

    pub(crate) fn retransmit_due(&mut self, peer: NodeId) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let before = session.retransmit_timer.take();
        if session.unacknowledged().len() == 0 {
            return;
        }
        if before == Some(session.acknowledged()) && !self.fenced {
            session.retransmit_stalled(self.now, &mut self.out);
        }
        session.retransmit_timer = Some(session.acknowledged());
        self.timers
            .set(self.now + self.limits.retransmit_after, Due::Retransmit(peer));
    }

    pub(crate) fn link_up(&mut self, peer: NodeId) {
        if self.fenced || self.is_dead(peer) {
            return;
        }
        let session = self
            .sessions
            .entry(peer)
            .or_insert_with(|| Session::new(peer, self.planted));
        session.connected(self.now, &mut self.out);
    }

    pub(crate) fn link_down(&mut self, peer: NodeId) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.disconnected();
        }
    }

    /// Fences the node if the lease may have expired by now.
    pub(crate) fn check_lease(&mut self, by_timer: bool) {
        if self.planted.is(Bug::TrustLeaseTimer) && !by_timer {
            return;
        }
        self.fenced |= self.now >= self.good_until;
    }

    /// Extends the lease and transmits the frames that were held back.
    pub(crate) fn may_act_until(&mut self, until: Time) {
        self.good_until = until;
        let was_fenced = std::mem::replace(&mut self.fenced, self.now >= until);
        if !was_fenced || self.fenced {
            return;
        }
        for session in self.sessions.values_mut() {
            session.connected(self.now, &mut self.out);
            if session.owes_acknowledgement() {
                session.acknowledge(self.now, &mut self.out);
            }
        }
    }

    /// Ends the session with a dead peer and returns the bodies that were never transmitted.
    pub(crate) fn end(&mut self, peer: NodeId) -> Vec<Body> {
        match self.sessions.remove(&peer) {
            Some(mut session) => session.take_never_sent(),
            None => Vec::new(),
        }
    }

    /// The newest view whose frames can be handled; `None` without a view.
    fn known_revision(&self) -> Option<u64> {
        match self.planted.is(Bug::IgnoreViews) {
            true => self.view.as_ref().map(|_| u64::MAX),
            false => self.view.as_ref().map(|view| view.revision),
        }
    }

    fn revision(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.revision)
    }
}

//! The stream of frames between two nodes: numbered, kept until acknowledged, transmitted again when a connection breaks.
//!
//! As long as both nodes live, whatever one says arrives once and in order at the other, over however many connections.
//! A frame is acknowledged only after it has been *handled*, so an acknowledgement also says that everything the receiver
//! had to say about it has been said before: the protocols for order rely on this.

use std::collections::VecDeque;

use elastin_types::{NodeId, Time};

use crate::{Body, Command, Frame};

/// After this many handled frames an acknowledgement is not put off any longer, so that the peer can forget them.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// Frames that are transmitted again at once when a connection hangs; more would only fill its buffers.
const RETRANSMIT_BURST: usize = 64;

/// One peer.
#[derive(Debug)]
pub(crate) struct Session {
    peer: NodeId,
    /// Everything up to this number has been handled by the peer.
    acknowledged: u64,
    /// What follows it, oldest first.
    unacknowledged: VecDeque<Body>,
    /// The highest number that was ever handed to the driver: what is above has certainly not left.
    transmitted: u64,
    /// Whether the driver last said that there is a connection; assumed at first, so that it dials.
    connected: bool,
    /// The view that the peer was last told of.
    pub(crate) announced: u64,
    /// The number of the last frame from the peer that was handled.
    handled: u64,
    /// Frames after it that came already, and wait for this node's view to catch up.
    waiting: VecDeque<Body>,
    /// The acknowledgement last transmitted.
    acknowledgement_sent: u64,
    /// The peer waits for an acknowledgement.
    pub(crate) acknowledge_now: bool,
    /// Whether a timer runs that will send the acknowledgement.
    pub(crate) acknowledge_timer: bool,
    /// Whether a timer runs that will transmit again, and what was acknowledged when it was set.
    pub(crate) retransmit_timer: Option<u64>,
}

impl Session {
    pub(crate) fn new(peer: NodeId) -> Self {
        Self {
            peer,
            acknowledged: 0,
            unacknowledged: VecDeque::new(),
            transmitted: 0,
            connected: true,
            announced: 0,
            handled: 0,
            waiting: VecDeque::new(),
            acknowledgement_sent: 0,
            acknowledge_now: false,
            acknowledge_timer: false,
            retransmit_timer: None,
        }
    }

    /// Everything up to this number has been handled by the peer.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Frames said and not acknowledged, oldest first.
    pub(crate) fn unacknowledged(&self) -> &VecDeque<Body> {
        &self.unacknowledged
    }

    /// Says something, and returns its number.
    pub(crate) fn say(&mut self, now: Time, body: Body, fenced: bool, out: &mut Vec<Command>) -> u64 {
        let number = self.acknowledged + self.unacknowledged.len() as u64 + 1;
        self.unacknowledged.push_back(body);
        if self.connected && !fenced && self.transmitted + 1 == number {
            self.transmit(now, number, out);
        }
        number
    }

    /// Takes in an acknowledgement; true if it is news.
    pub(crate) fn take_acknowledgement(&mut self, number: u64) -> bool {
        // A peer can't have handled what never left; a number from nowhere is ignored.
        if number <= self.acknowledged || number > self.transmitted {
            return false;
        }
        self.unacknowledged.drain(..(number - self.acknowledged) as usize);
        self.acknowledged = number;
        true
    }

    /// Takes in a numbered body. What came before, and what leaves a gap, is not kept but asked for (or answered) again.
    pub(crate) fn take(&mut self, number: u64, body: Body, waiting_max: usize) {
        let expected = self.handled + self.waiting.len() as u64 + 1;
        if number == expected && self.waiting.len() < waiting_max {
            self.waiting.push_back(body);
        } else {
            self.acknowledge_now = true;
        }
    }

    /// The next frame to be handled, if this node knows the view that it was sent in.
    pub(crate) fn next(&mut self, revision: u64) -> Option<Body> {
        match self.waiting.front()? {
            Body::ViewIs { revision: theirs } if *theirs > revision => None,
            _ => self.waiting.pop_front(),
        }
    }

    /// The frame from [`Session::next`] has been handled entirely.
    pub(crate) fn handled(&mut self) {
        self.handled += 1;
    }

    /// Whether handled frames are still to be acknowledged.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.acknowledge_now || self.handled > self.acknowledgement_sent
    }

    /// Whether an acknowledgement should leave without waiting for a frame that carries it.
    pub(crate) fn acknowledgement_is_urgent(&self) -> bool {
        self.acknowledge_now || self.handled - self.acknowledgement_sent >= ACKNOWLEDGE_EVERY
    }

    /// Transmits an acknowledgement alone.
    pub(crate) fn acknowledge(&mut self, out: &mut Vec<Command>) {
        self.acknowledgement_sent = self.handled;
        self.acknowledge_now = false;
        out.push(Command::Transmit {
            to: self.peer,
            frame: Frame {
                number: 0,
                acknowledged: self.handled,
                body: None,
            },
        });
    }

    /// There is a new connection (or the fence is off): everything not acknowledged is transmitted again.
    pub(crate) fn connected(&mut self, now: Time, out: &mut Vec<Command>) {
        self.connected = true;
        self.transmit_again(now, usize::MAX, out);
    }

    /// The connection broke.
    pub(crate) fn disconnected(&mut self) {
        self.connected = false;
    }

    /// Nothing was acknowledged for long: the oldest frames are transmitted again; without a connection just one, so
    /// that the driver dials.
    pub(crate) fn hangs(&mut self, now: Time, out: &mut Vec<Command>) {
        let count = if self.connected { RETRANSMIT_BURST } else { 1 };
        self.transmit_again(now, count, out);
    }

    /// What certainly never left, taken out, oldest first.
    pub(crate) fn take_never_sent(&mut self) -> Vec<Body> {
        let kept = (self.transmitted - self.acknowledged) as usize;
        self.unacknowledged.drain(kept..).collect()
    }

    fn transmit_again(&mut self, now: Time, count: usize, out: &mut Vec<Command>) {
        let last = self.acknowledged + self.unacknowledged.len().min(count) as u64;
        for number in self.acknowledged + 1..=last {
            self.transmit(now, number, out);
        }
    }

    fn transmit(&mut self, now: Time, number: u64, out: &mut Vec<Command>) {
        let mut body = self.unacknowledged[(number - self.acknowledged - 1) as usize].clone();
        body.to_wire(now);
        self.transmitted = self.transmitted.max(number);
        self.acknowledgement_sent = self.handled;
        self.acknowledge_now = false;
        out.push(Command::Transmit {
            to: self.peer,
            frame: Frame {
                number,
                acknowledged: self.handled,
                body: Some(body),
            },
        });
    }
}

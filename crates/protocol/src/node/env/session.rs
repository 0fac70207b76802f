//! The stream of frames between two nodes: numbered, kept until acknowledged, retransmitted after a connection breaks.
//!
//! As long as both nodes live, each body arrives exactly once and in order, over any number of connections. A frame is
//! acknowledged only after it has been *handled*. An acknowledgement takes effect only after everything sent before it
//! has been handled. So once a frame is acknowledged, the sender has also received everything that the receiver sent in
//! response to it. The ordering protocols rely on this.

use std::collections::VecDeque;

use elastin_types::{NodeId, Time};

use crate::bug::{Bug, Planted};
use crate::{Body, Command, Frame, Limits};

/// An acknowledgement is not delayed beyond this many handled frames, so that the peer can drop them.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// Frames retransmitted when a connection first seems stalled; more would only fill its buffers. The number doubles
/// while nothing changes, because an acknowledgement may wait for the very last frame.
const RETRANSMIT_BURST: usize = 64;

/// An outbound body, kept until it is acknowledged.
#[derive(Debug)]
struct OutboundBody {
    /// The acknowledgement sent with it.
    acknowledged: u64,
    body: Body,
}

/// The session with one peer.
#[derive(Debug)]
pub(crate) struct Session {
    peer: NodeId,
    planted: Planted,
    /// The peer has handled every frame up to this number.
    acknowledged: u64,
    /// The bodies sent after that, oldest first.
    unacknowledged: VecDeque<OutboundBody>,
    /// Payload bytes of `unacknowledged`.
    unacknowledged_bytes: usize,
    /// When a call or its outcome was last sent or received.
    carried_call_at: Option<Time>,
    /// The highest frame number handed to the driver. Frames above it have certainly not left.
    transmitted: u64,
    /// Number of frames to retransmit if nothing is acknowledged.
    burst: usize,
    /// Whether the driver last reported a connection. Initially assumed, so that the driver dials.
    connected: bool,
    /// The revision of the view last announced to the peer.
    pub(crate) announced: u64,
    /// The number of the last frame from the peer that was handled.
    handled: u64,
    /// The last handled frame of which no message can bounce any more; frames up to it may be acknowledged.
    settled: u64,
    /// Later frames that wait for this node's view to catch up, each with its acknowledgement.
    waiting: VecDeque<(u64, Body)>,
    /// Payload bytes of `waiting`.
    waiting_bytes: usize,
    /// An acknowledgement (second) that takes effect once every frame up to the first number has been handled.
    acknowledged_later: Option<(u64, u64)>,
    /// The acknowledgement last transmitted.
    acknowledgement_sent: u64,
    /// Whether the peer waits for an acknowledgement.
    pub(crate) acknowledge_now: bool,
    /// When a timer will send the acknowledgement. Later, redundant timers may exist.
    pub(crate) acknowledges_at: Option<Time>,
    /// Whether the peer has sent a body that it is not authorized to send.
    pub(crate) is_refused: bool,
    /// The acknowledged number when the retransmission timer was set, if one runs.
    pub(crate) retransmit_timer: Option<u64>,
}

impl Session {
    pub(crate) fn new(peer: NodeId, planted: Planted) -> Self {
        Self {
            peer,
            planted,
            acknowledged: 0,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            carried_call_at: None,
            transmitted: 0,
            burst: RETRANSMIT_BURST,
            connected: true,
            announced: 0,
            handled: 0,
            settled: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            acknowledged_later: None,
            acknowledgement_sent: 0,
            acknowledge_now: false,
            acknowledges_at: None,
            is_refused: false,
            retransmit_timer: None,
        }
    }

    /// The peer has handled every frame up to this number.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// When a call or its outcome was last sent or received.
    pub(crate) fn carried_call_at(&self) -> Option<Time> {
        self.carried_call_at
    }

    /// Unacknowledged bodies, oldest first.
    pub(crate) fn unacknowledged(&self) -> impl ExactSizeIterator<Item = &Body> + DoubleEndedIterator {
        self.unacknowledged.iter().map(|outbound| &outbound.body)
    }

    /// Payload bytes kept until they are acknowledged.
    pub(crate) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged_bytes
    }

    /// Sends a body and returns its frame number.
    pub(crate) fn send(&mut self, now: Time, body: Body, fenced: bool, out: &mut Vec<Command>) -> u64 {
        let number = self.acknowledged + self.unacknowledged.len() as u64 + 1;
        self.unacknowledged_bytes += body.payload_bytes();
        if body.is_of_call() {
            self.carried_call_at = Some(now);
        }
        self.unacknowledged.push_back(OutboundBody {
            acknowledged: self.settled,
            body,
        });
        if self.connected && !fenced && self.transmitted + 1 == number {
            self.transmit(now, number, out);
        }
        number
    }

    /// Accepts a frame.
    ///
    /// A duplicate, or a body after a gap, is discarded and triggers an acknowledgement. The next body to be handled is
    /// returned directly, as [`Session::next`] would, without passing through `waiting`.
    pub(crate) fn take(&mut self, now: Time, frame: Frame, limits: &Limits, known: Option<u64>) -> Option<(u64, Body)> {
        let Frame {
            number,
            acknowledged,
            body,
            ..
        } = frame;
        if body.as_ref().is_some_and(Body::is_of_call) {
            self.carried_call_at = Some(now);
        }
        let expected = self.handled + self.waiting.len() as u64 + 1;
        let is_next = number == expected || self.planted.is(Bug::HandleTwice) && number < expected;
        match body {
            Some(body) if is_next && self.has_room(limits) => {
                if self.waiting.is_empty() && is_of_view(&body, known) {
                    return Some((acknowledged, body));
                }
                self.waiting_bytes += body.payload_bytes();
                self.waiting.push_back((acknowledged, body));
                return None;
            }
            Some(_) => self.acknowledge_now = true,
            None => {}
        }
        if self.acknowledged_later.is_none_or(|(_, later)| later < acknowledged) {
            self.acknowledged_later = Some((number, acknowledged));
        }
        None
    }

    /// Whether one more frame may wait. The bound is what an honest peer may have in flight; it retransmits the rest.
    fn has_room(&self, limits: &Limits) -> bool {
        self.waiting.len() < limits.unacknowledged_per_peer && self.waiting_bytes < limits.unacknowledged_bytes_per_peer
    }

    /// The next frame to be handled, if this node knows the view that it was sent in.
    pub(crate) fn next(&mut self, known: Option<u64>) -> Option<(u64, Body)> {
        let (_, body) = self.waiting.front()?;
        if !is_of_view(body, known) {
            return None;
        }
        self.waiting_bytes -= body.payload_bytes();
        self.waiting.pop_front()
    }

    /// Marks the frame from [`Session::next`] as handled, so that its acknowledgement takes effect. Returns whether
    /// that advances.
    pub(crate) fn handled(&mut self, acknowledged: u64) -> bool {
        self.handled += 1;
        self.take_acknowledgement(acknowledged)
    }

    /// Applies a deferred acknowledgement if it is due; returns whether it advances.
    pub(crate) fn take_later_acknowledgement(&mut self) -> bool {
        match self.acknowledged_later {
            Some((number, acknowledged)) if number <= self.handled => {
                self.acknowledged_later = None;
                self.take_acknowledgement(acknowledged)
            }
            _ => false,
        }
    }

    pub(crate) fn take_acknowledgement(&mut self, number: u64) -> bool {
        // A peer cannot have handled a frame that never left: an invalid number is ignored.
        if number <= self.acknowledged || number > self.transmitted {
            return false;
        }
        let forgotten = self.unacknowledged.drain(..(number - self.acknowledged) as usize);
        let bytes: usize = forgotten.map(|outbound| outbound.body.payload_bytes()).sum();
        self.unacknowledged_bytes -= bytes;
        self.acknowledged = number;
        self.burst = RETRANSMIT_BURST;
        true
    }

    /// Marks all handled frames as free of possible bounces.
    pub(crate) fn settle(&mut self) {
        self.settled = self.handled;
    }

    /// Whether all handled frames may be acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.handled
    }

    /// Whether an acknowledgement is outstanding.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.acknowledge_now || self.handled > self.acknowledgement_sent
    }

    /// Whether an acknowledgement should leave without waiting for a frame to carry it.
    pub(crate) fn acknowledgement_is_urgent(&self) -> bool {
        self.acknowledge_now || self.handled - self.acknowledgement_sent >= ACKNOWLEDGE_EVERY
    }

    /// Transmits a bare acknowledgement.
    pub(crate) fn acknowledge(&mut self, now: Time, out: &mut Vec<Command>) {
        self.acknowledgement_sent = self.settled;
        self.acknowledge_now = false;
        out.push(Command::Transmit {
            to: self.peer,
            frame: Frame {
                number: self.acknowledged + self.unacknowledged.len() as u64,
                acknowledged: self.settled,
                sent_at: now,
                body: None,
            },
        });
    }

    /// Handles a new connection, or the end of fencing: retransmits all unacknowledged frames.
    pub(crate) fn connected(&mut self, now: Time, out: &mut Vec<Command>) {
        self.connected = true;
        self.retransmit(now, usize::MAX, out);
    }

    /// Handles a broken connection.
    pub(crate) fn disconnected(&mut self) {
        self.connected = false;
    }

    /// Retransmits the oldest frames after a time without acknowledgements. Without a connection it is just one, so
    /// that the driver dials.
    pub(crate) fn retransmit_stalled(&mut self, now: Time, out: &mut Vec<Command>) {
        let count = if self.connected { self.burst } else { 1 };
        self.burst = self.burst.saturating_mul(2);
        self.retransmit(now, count, out);
    }

    /// Takes the bodies that were never transmitted, oldest first.
    pub(crate) fn take_never_sent(&mut self) -> Vec<Body> {
        let kept = (self.transmitted - self.acknowledged) as usize;
        let never_sent: Vec<Body> = self
            .unacknowledged
            .drain(kept..)
            .map(|outbound| outbound.body)
            .collect();
        self.unacknowledged_bytes -= never_sent.iter().map(Body::payload_bytes).sum::<usize>();
        never_sent
    }

    fn retransmit(&mut self, now: Time, count: usize, out: &mut Vec<Command>) {
        let last = self.acknowledged + self.unacknowledged.len().min(count) as u64;
        for number in self.acknowledged + 1..=last {
            self.transmit(now, number, out);
        }
    }

    fn transmit(&mut self, now: Time, number: u64, out: &mut Vec<Command>) {
        let outbound = &self.unacknowledged[(number - self.acknowledged - 1) as usize];
        let (acknowledged, mut body) = (outbound.acknowledged, outbound.body.clone());
        if self.planted.is(Bug::LoseTells) && number <= self.transmitted && body.is_tell() {
            body = Body::Ping;
        }
        self.transmitted = self.transmitted.max(number);
        self.acknowledgement_sent = self.acknowledgement_sent.max(acknowledged);
        out.push(Command::Transmit {
            to: self.peer,
            frame: Frame {
                number,
                acknowledged,
                sent_at: now,
                body: Some(body),
            },
        });
    }
}

/// Whether a node that knows this view can handle a body. Without a view it can handle none.
fn is_of_view(body: &Body, known: Option<u64>) -> bool {
    known.is_some_and(|known| !matches!(body, Body::ViewIs { revision } if *revision > known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MoveBody, MoveStep};
    use elastin_types::{ActivationEpoch, ActorId, ActorType};

    fn chunk(bytes: usize) -> Body {
        Body::Move(MoveBody {
            actor: ActorId::new(ActorType::of("Folder"), 1),
            epoch: ActivationEpoch::default(),
            attempt: 0,
            step: MoveStep::Stage {
                chunk: vec![0; bytes].into(),
                last: false,
            },
        })
    }

    #[test]
    fn unacknowledged_bytes_are_counted_until_acknowledged_or_taken() {
        let mut session = Session::new(NodeId(2), Planted::default());
        let mut out = Vec::new();
        for bytes in [100, 20, 3] {
            session.send(Time::ZERO, chunk(bytes), false, &mut out);
        }
        assert_eq!(session.unacknowledged_bytes(), 123);
        assert!(session.take_acknowledgement(1));
        assert_eq!(session.unacknowledged_bytes(), 23);
        session.disconnected();
        session.send(Time::ZERO, chunk(1000), false, &mut out);
        assert_eq!(session.unacknowledged_bytes(), 1023);
        assert_eq!(session.take_never_sent().len(), 1);
        assert_eq!(session.unacknowledged_bytes(), 23);
    }

    #[test]
    fn frames_waiting_for_a_view_are_bounded_in_bytes() {
        let mut session = Session::new(NodeId(2), Planted::default());
        let limits = Limits {
            unacknowledged_bytes_per_peer: 100,
            ..Limits::default()
        };
        let comes = |session: &mut Session, number, body| {
            let frame = Frame {
                number,
                acknowledged: 0,
                sent_at: Time::ZERO,
                body: Some(body),
            };
            session.take(Time::ZERO, frame, &limits, Some(1)).is_some()
        };
        assert!(!comes(&mut session, 1, Body::ViewIs { revision: 9 }));
        for number in 2..100 {
            assert!(!comes(&mut session, number, chunk(60)));
        }
        assert_eq!((session.waiting.len(), session.waiting_bytes), (3, 120));
        for _ in 0..3 {
            assert!(session.next(Some(9)).is_some());
            session.handled(0);
        }
        assert_eq!(session.waiting_bytes, 0);
        assert!(comes(&mut session, 4, chunk(60)), "a discarded frame is retransmitted");
    }
}

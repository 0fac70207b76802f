//! The stream of frames between two nodes: numbered, kept until acknowledged, transmitted again when a connection breaks.
//!
//! As long as both nodes live, whatever one says arrives once and in order at the other, over however many connections.
//! A frame is acknowledged only after it has been *handled*, and an acknowledgement counts only after everything that was
//! said before it has been handled. So who gets an acknowledgement has also heard everything that the receiver had to send
//! about the frame: the protocols for order rely on this.

use std::collections::VecDeque;

use elastin_types::{NodeId, Time};

use crate::bug::{Bug, Planted};
use crate::{Body, Command, Frame, Limits};

/// After this many handled frames an acknowledgement is not put off any longer, so that the peer can forget them.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// Frames that are transmitted again when a connection first seems to hang; more would only fill its buffers. It doubles
/// while nothing changes, because an acknowledgement may wait for the very last frame.
const RETRANSMIT_BURST: usize = 64;

/// Something that was said, and is kept until it is acknowledged.
#[derive(Debug)]
struct Said {
    /// What had been handled by then.
    acknowledged: u64,
    body: Body,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Session {
    peer: NodeId,
    planted: Planted,
    /// Everything up to this number has been handled by the peer.
    acknowledged: u64,
    /// What follows it, oldest first.
    unacknowledged: VecDeque<Said>,
    /// The payload of all of these.
    unacknowledged_bytes: usize,
    /// When a call or its outcome was last said or heard.
    carried_call_at: Option<Time>,
    /// The highest number that was ever handed to the driver: what is above has certainly not left.
    transmitted: u64,
    /// How many frames are transmitted again if nothing is acknowledged.
    burst: usize,
    /// Whether the driver last said that there is a connection; assumed at first, so that it dials.
    connected: bool,
    /// The view that the peer was last told of.
    pub(crate) announced: u64,
    /// The number of the last frame from the peer that was handled.
    handled: u64,
    /// The last one of them from which nothing can bounce any more: so far they may be acknowledged.
    settled: u64,
    /// Frames after it that came already, and wait for this node's view to catch up; each with its acknowledgement.
    waiting: VecDeque<(u64, Body)>,
    /// The payload of these.
    waiting_bytes: usize,
    /// An acknowledgement that counts once everything up to the first number has been handled.
    acknowledged_later: Option<(u64, u64)>,
    /// The acknowledgement last transmitted.
    acknowledgement_sent: u64,
    /// The peer waits for an acknowledgement.
    pub(crate) acknowledge_now: bool,
    /// When a timer will send the acknowledgement; there may be later ones that nobody needs.
    pub(crate) acknowledges_at: Option<Time>,
    /// Whether the peer has said something that it may not send.
    pub(crate) is_refused: bool,
    /// Whether a timer runs that will transmit again, and what was acknowledged when it was set.
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

    /// Everything up to this number has been handled by the peer.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// When a call or its outcome was last said or heard.
    pub(crate) fn carried_call_at(&self) -> Option<Time> {
        self.carried_call_at
    }

    /// Frames said and not acknowledged, oldest first.
    pub(crate) fn unacknowledged(&self) -> impl ExactSizeIterator<Item = &Body> + DoubleEndedIterator {
        self.unacknowledged.iter().map(|said| &said.body)
    }

    /// How many bytes of payload are kept until they are acknowledged.
    pub(crate) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged_bytes
    }

    /// Says something, and returns its number.
    pub(crate) fn send(&mut self, now: Time, body: Body, fenced: bool, out: &mut Vec<Command>) -> u64 {
        let number = self.acknowledged + self.unacknowledged.len() as u64 + 1;
        self.unacknowledged_bytes += body.payload_bytes();
        if body.is_of_call() {
            self.carried_call_at = Some(now);
        }
        self.unacknowledged.push_back(Said {
            acknowledged: self.settled,
            body,
        });
        if self.connected && !fenced && self.transmitted + 1 == number {
            self.transmit(now, number, out);
        }
        number
    }

    /// Takes in a frame. A body that came before, or that leaves a gap, is not kept but answered (or asked for) again. If it is
    /// the next one to be handled, gives it as [`Session::next`] would, without a stop among those that wait.
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

    /// Whether one more frame may wait: as much as may be on its way from an honest peer, which says the rest again.
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

    /// The frame from [`Session::next`] has been handled entirely: its acknowledgement counts. True if that is news.
    pub(crate) fn handled(&mut self, acknowledged: u64) -> bool {
        self.handled += 1;
        self.take_acknowledgement(acknowledged)
    }

    /// Takes in an acknowledgement whose time has come; true if it is news.
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
        // A peer can't have handled what never left; a number from nowhere is ignored.
        if number <= self.acknowledged || number > self.transmitted {
            return false;
        }
        let forgotten = self.unacknowledged.drain(..(number - self.acknowledged) as usize);
        let bytes: usize = forgotten.map(|said| said.body.payload_bytes()).sum();
        self.unacknowledged_bytes -= bytes;
        self.acknowledged = number;
        self.burst = RETRANSMIT_BURST;
        true
    }

    /// Nothing can bounce from what was handled so far.
    pub(crate) fn settle(&mut self) {
        self.settled = self.handled;
    }

    /// Whether all that was handled may be acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.handled
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
        let count = if self.connected { self.burst } else { 1 };
        self.burst = self.burst.saturating_mul(2);
        self.transmit_again(now, count, out);
    }

    /// What certainly never left, taken out, oldest first.
    pub(crate) fn take_never_sent(&mut self) -> Vec<Body> {
        let kept = (self.transmitted - self.acknowledged) as usize;
        let never_sent: Vec<Body> = self.unacknowledged.drain(kept..).map(|said| said.body).collect();
        self.unacknowledged_bytes -= never_sent.iter().map(Body::payload_bytes).sum::<usize>();
        never_sent
    }

    fn transmit_again(&mut self, now: Time, count: usize, out: &mut Vec<Command>) {
        let last = self.acknowledged + self.unacknowledged.len().min(count) as u64;
        for number in self.acknowledged + 1..=last {
            self.transmit(now, number, out);
        }
    }

    fn transmit(&mut self, now: Time, number: u64, out: &mut Vec<Command>) {
        let said = &self.unacknowledged[(number - self.acknowledged - 1) as usize];
        let (acknowledged, mut body) = (said.acknowledged, said.body.clone());
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

/// Whether something can be handled by a node that knows this view. Without a view nothing can.
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
    fn what_is_kept_for_a_peer_is_counted_until_it_is_acknowledged_or_taken_back() {
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
    fn what_waits_for_a_view_is_bounded_in_bytes() {
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
        assert!(comes(&mut session, 4, chunk(60)), "what was not kept is said again");
    }
}

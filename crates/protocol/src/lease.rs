//! Lease of a node: when it may act, and when others may take over from it.
//!
//! ```text
//!   sends keep-alive        the service receives it                fences itself      the service ends the lease
//!  ──────┬───────────────────────────┬──────────────────────────────────┬─────────────────────────┬──────────► time
//!        │◄──────────────── time to live minus margin ─────────────────►│                         │
//!                                    │◄─────────────────── time to live ─────────────────────────►│◄── hold ──► take-over
//! ```
//!
//! A node counts from when it *sent* its last successful keep-alive. The service counts from when it received it, which
//! is later. So a node has stopped before the service ends its lease. The margin is for clocks that run at different
//! speeds. The hold is for leases that were revoked early: such a node may act until its time to live is over.

use std::collections::BTreeMap;
use std::time::Duration;

use elastin_types::Time;

use crate::bug::{Bug, Planted};

/// Keep-alives per time to live, so that a lost one does not cost the lease.
const KEEP_ALIVES_PER_TTL: u32 = 4;
/// The margin is this fraction of the time to live: clocks differ by far less.
const MARGIN_DIVISOR: u32 = 10;
/// Keep-alives that may be unanswered at once. Older ones are dropped: their answers extend the lease less than newer
/// ones'.
const UNANSWERED_MAX: usize = 16;

/// Identifies a keep-alive, so that its answer can be matched with its sending time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepAliveId(pub u64);

/// Something for the driver of a lease to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCommand {
    /// Send a keep-alive to the coordination service now, and report its answer under this id.
    KeepAlive(KeepAliveId),
    /// The lease may have expired: see [`Event::MayActUntil`](crate::Event::MayActUntil).
    Fence,
    /// The lease was confirmed: see [`Event::MayActUntil`](crate::Event::MayActUntil).
    Unfence,
    /// The lease is gone: the node must end everything, and may join as a new one.
    End,
}

/// A node's lease, from the node's own point of view. The driver calls [`Lease::tick`] at [`Lease::next_timer`], and
/// before any event that follows a possible suspension of the process.
#[derive(Debug)]
pub struct Lease {
    ttl: Duration,
    /// End of the time in which the node may act.
    good_until: Time,
    send_at: Time,
    fenced: bool,
    ended: bool,
    last: u64,
    unanswered: BTreeMap<KeepAliveId, Time>,
    pub(crate) planted: Planted,
}

impl Lease {
    /// A lease that was requested at `asked` and granted with this time to live.
    pub fn new(asked: Time, ttl: Duration) -> Self {
        Self {
            ttl,
            good_until: good_until(asked, ttl),
            send_at: asked + ttl / KEEP_ALIVES_PER_TTL,
            fenced: false,
            ended: false,
            last: 0,
            unanswered: BTreeMap::new(),
            planted: Planted::default(),
        }
    }

    /// End of the time in which the node may act, as far as it knows now.
    pub fn good_until(&self) -> Time {
        self.good_until
    }

    /// Whether the node may start turns and transmit frames at this moment.
    pub fn may_act(&self, now: Time) -> bool {
        !self.fenced && !self.ended && now < self.good_until
    }

    /// When the driver must call [`Lease::tick`] next.
    pub fn next_timer(&self) -> Option<Time> {
        match (self.ended, self.fenced) {
            (true, _) => None,
            (false, true) => Some(self.send_at),
            (false, false) => Some(self.send_at.min(self.good_until)),
        }
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Time, out: &mut Vec<LeaseCommand>) {
        if self.ended {
            return;
        }
        if !self.fenced && now >= self.good_until {
            self.fenced = true;
            out.push(LeaseCommand::Fence);
        }
        if now >= self.send_at {
            self.send_at = now + self.ttl / KEEP_ALIVES_PER_TTL;
            self.last += 1;
            let id = KeepAliveId(self.last);
            self.unanswered.insert(id, now);
            if self.unanswered.len() > UNANSWERED_MAX {
                self.unanswered.pop_first();
            }
            out.push(LeaseCommand::KeepAlive(id));
        }
    }

    /// Handles an answer of the service. `alive` is the remaining time to live, counted from when the service received
    /// the keep-alive, or `None` if the lease is gone. Failures that prove neither are not reported.
    pub fn answered(&mut self, now: Time, id: KeepAliveId, alive: Option<Duration>, out: &mut Vec<LeaseCommand>) {
        let Some(sent) = self.unanswered.remove(&id) else {
            return;
        };
        if self.ended {
            return;
        }
        let Some(ttl) = alive else {
            self.ended = true;
            out.push(LeaseCommand::End);
            return;
        };
        self.ttl = ttl;
        let counts_from = match self.planted.is(Bug::CountLeaseFromAnswer) {
            true => now,
            false => sent,
        };
        self.good_until = self.good_until.max(good_until(counts_from, ttl));
        // The answer may be so late that the lease may have expired again.
        if self.fenced && now < self.good_until {
            self.fenced = false;
            out.push(LeaseCommand::Unfence);
        }
    }
}

fn good_until(sent: Time, ttl: Duration) -> Time {
    sent + (ttl - ttl / MARGIN_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: f64) -> Time {
        Time((seconds * 1e9) as u64)
    }

    fn tick(lease: &mut Lease, seconds: f64) -> Vec<LeaseCommand> {
        let mut out = Vec::new();
        lease.tick(at(seconds), &mut out);
        out
    }

    fn answer(lease: &mut Lease, seconds: f64, id: u64, alive: bool) -> Vec<LeaseCommand> {
        let mut out = Vec::new();
        lease.answered(at(seconds), KeepAliveId(id), alive.then_some(TTL), &mut out);
        out
    }

    #[test]
    fn the_lease_counts_from_sending_the_keep_alive() {
        let mut lease = Lease::new(at(0.0), TTL);
        assert_eq!(tick(&mut lease, 2.5), [LeaseCommand::KeepAlive(KeepAliveId(1))]);
        // The answer is slow: it is good for nine seconds after the keep-alive, not after the answer.
        assert_eq!(answer(&mut lease, 8.0, 1, true), []);
        assert!(lease.may_act(at(11.4)));
        assert!(!lease.may_act(at(11.5)));
    }

    #[test]
    fn an_unanswered_node_fences_itself_and_recovers() {
        let mut lease = Lease::new(at(0.0), TTL);
        tick(&mut lease, 2.5);
        tick(&mut lease, 5.0);
        assert_eq!(lease.next_timer(), Some(at(7.5)));
        tick(&mut lease, 7.5);
        assert_eq!(lease.next_timer(), Some(at(9.0)));
        assert_eq!(tick(&mut lease, 9.0), [LeaseCommand::Fence]);
        assert_eq!(tick(&mut lease, 10.0), [LeaseCommand::KeepAlive(KeepAliveId(4))]);
        // The answer to an old keep-alive is too old to act on.
        assert_eq!(answer(&mut lease, 14.5, 2, true), []);
        assert_eq!(answer(&mut lease, 14.6, 4, true), [LeaseCommand::Unfence]);
        assert!(lease.may_act(at(18.9)));
    }

    #[test]
    fn a_suspended_process_finds_itself_fenced() {
        let mut lease = Lease::new(at(0.0), TTL);
        assert!(!lease.may_act(at(60.0)));
        let commands = tick(&mut lease, 60.0);
        assert_eq!(commands, [LeaseCommand::Fence, LeaseCommand::KeepAlive(KeepAliveId(1))]);
        assert_eq!(answer(&mut lease, 60.1, 1, false), [LeaseCommand::End]);
        assert_eq!(lease.next_timer(), None);
        assert_eq!(tick(&mut lease, 70.0), []);
        assert!(!lease.may_act(at(60.2)));
    }
}

//! Penalties for peers that sent malformed frames. A peer retransmits each frame until it is acknowledged, so its next connection
//! most likely brings the same frame. That connection is read only after a pause, with exponential backoff.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use elastin_types::NodeId;

use crate::tuning::{PENALTY_PAUSE_MAX, PENALTY_PAUSE_MIN};

/// The peers that have recently sent malformed frames.
#[derive(Debug, Default)]
pub(super) struct PeerPenalties {
    peers: BTreeMap<NodeId, Penalty>,
}

#[derive(Debug)]
struct Penalty {
    pause: Duration,
    until: Instant,
}

impl PeerPenalties {
    /// Records a malformed frame of a peer.
    pub(super) fn record(&mut self, peer: NodeId, now: Instant) {
        self.peers.retain(|_, penalty| now < penalty.until + PENALTY_PAUSE_MAX);
        let before = self.peers.get(&peer).map(|penalty| penalty.pause);
        let pause = before.map_or(PENALTY_PAUSE_MIN, |pause| PENALTY_PAUSE_MAX.min(2 * pause));
        let until = now + pause;
        self.peers.insert(peer, Penalty { pause, until });
    }

    /// The rest of a peer's pause, in which its connections are not read.
    pub(super) fn pause(&self, peer: NodeId, now: Instant) -> Duration {
        let penalty = self.peers.get(&peer);
        penalty.map_or(Duration::ZERO, |penalty| penalty.until.saturating_duration_since(now))
    }

    /// Forgets a peer that has left.
    pub(super) fn forget(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(2);

    #[test]
    fn pauses_back_off_and_expire() {
        let mut penalties = PeerPenalties::default();
        let mut now = Instant::now();
        assert_eq!(penalties.pause(PEER, now), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            penalties.record(PEER, now);
            pauses.push(penalties.pause(PEER, now).as_millis());
            now += penalties.pause(PEER, now);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(penalties.pause(PEER, now), Duration::ZERO);
        assert_eq!(penalties.pause(NodeId(3), now), Duration::ZERO, "another peer");

        now += PENALTY_PAUSE_MAX;
        penalties.record(PEER, now);
        assert_eq!(
            penalties.pause(PEER, now),
            PENALTY_PAUSE_MIN,
            "the penalty was forgotten"
        );
        penalties.forget(PEER);
        assert_eq!(penalties.pause(PEER, now), Duration::ZERO);
    }
}

//! Peers that talked nonsense. What a peer says is numbered and said again until it is acknowledged, so the next connection
//! with one most likely brings the same nonsense: it is read only after a pause, which grows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use elastin_types::NodeId;

/// The pause after the first nonsense; after each that follows it is twice as long.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// A peer is heard again after so long at the latest. One that has talked sense for as long is trusted again.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The peers that talked nonsense not long ago.
#[derive(Debug, Default)]
pub(super) struct PeerPenalty {
    peers: BTreeMap<NodeId, Suspect>,
}

#[derive(Debug)]
struct Suspect {
    pause: Duration,
    until: Instant,
}

impl PeerPenalty {
    /// A peer has talked nonsense.
    pub(super) fn note(&mut self, peer: NodeId, now: Instant) {
        self.peers.retain(|_, suspect| now < suspect.until + PAUSE_MAX);
        let before = self.peers.get(&peer).map(|suspect| suspect.pause);
        let pause = before.map_or(PAUSE_MIN, |pause| PAUSE_MAX.min(2 * pause));
        let until = now + pause;
        self.peers.insert(peer, Suspect { pause, until });
    }

    /// How long a connection with a peer is not read from now on.
    pub(super) fn pause(&self, peer: NodeId, now: Instant) -> Duration {
        let suspect = self.peers.get(&peer);
        suspect.map_or(Duration::ZERO, |suspect| suspect.until.saturating_duration_since(now))
    }

    /// A peer has left.
    pub(super) fn forget(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(2);

    #[test]
    fn pauses_grow_and_end() {
        let mut peer_penalty = PeerPenalty::default();
        let mut now = Instant::now();
        assert_eq!(peer_penalty.pause(PEER, now), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            peer_penalty.note(PEER, now);
            pauses.push(peer_penalty.pause(PEER, now).as_millis());
            now += peer_penalty.pause(PEER, now);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(peer_penalty.pause(PEER, now), Duration::ZERO);
        assert_eq!(peer_penalty.pause(NodeId(3), now), Duration::ZERO, "only the one");

        now += PAUSE_MAX;
        peer_penalty.note(PEER, now);
        assert_eq!(peer_penalty.pause(PEER, now), PAUSE_MIN, "it has talked sense for long");
        peer_penalty.forget(PEER);
        assert_eq!(peer_penalty.pause(PEER, now), Duration::ZERO);
    }
}

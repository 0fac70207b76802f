//! Evacuation of a draining server: picks the next actors to move, a bounded number at a time.

use std::collections::BTreeSet;

use elastin_types::ActorId;

/// The most moves in flight: as many as the protocol runs at a time.
const IN_FLIGHT_MAX: usize = 32;

/// The actors that have to move away. The list is refreshed once every known actor has been tried: some may have
/// arrived meanwhile, and some moves may have failed.
#[derive(Debug, Default)]
pub(super) struct Evacuation {
    remaining: Vec<ActorId>,
    in_flight: BTreeSet<ActorId>,
}

impl Evacuation {
    /// The actors to move now. `hosted` lists the actors of this server.
    pub(super) fn next(&mut self, hosted: impl FnOnce() -> Vec<ActorId>) -> Vec<ActorId> {
        if self.remaining.is_empty() && self.in_flight.is_empty() {
            self.remaining = hosted();
        }
        let count = IN_FLIGHT_MAX
            .saturating_sub(self.in_flight.len())
            .min(self.remaining.len());
        let next = self.remaining.split_off(self.remaining.len() - count);
        self.in_flight.extend(next.iter().cloned());
        next
    }

    /// A move has ended, or could not begin.
    pub(super) fn ended(&mut self, actor: &ActorId) {
        self.in_flight.remove(actor);
    }

    /// Whether no known actor remains.
    pub(super) fn is_done(&self) -> bool {
        self.remaining.is_empty() && self.in_flight.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::ActorType;

    use super::*;

    fn actors(keys: std::ops::Range<u64>) -> Vec<ActorId> {
        keys.map(|key| ActorId::new(ActorType::of("Folder"), key)).collect()
    }

    #[test]
    fn moves_in_flight_are_bounded_and_failed_moves_retried() {
        let mut evacuation = Evacuation::default();
        let first = evacuation.next(|| actors(0..40));
        assert_eq!(first.len(), IN_FLIGHT_MAX);
        assert_eq!(evacuation.next(|| panic!("actors remain")), []);
        evacuation.ended(&first[0]);
        assert_eq!(evacuation.next(|| panic!("actors remain")).len(), 1);
        for actor in &first {
            evacuation.ended(actor);
        }
        for actor in evacuation.next(|| panic!("actors remain")) {
            evacuation.ended(&actor);
        }
        evacuation.ended(&actors(7..8)[0]);
        let in_flight: Vec<ActorId> = evacuation.in_flight.iter().cloned().collect();
        for actor in in_flight {
            evacuation.ended(&actor);
        }
        assert!(evacuation.is_done());
        assert_eq!(evacuation.next(|| actors(3..5)).len(), 2);
        assert!(!evacuation.is_done());
    }
}

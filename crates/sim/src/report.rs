//! What came out of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Violation;

/// What came out of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Promises that were broken; empty if all is well.
    pub violations: Vec<Violation>,
    /// Events that the protocol handled.
    pub events: u64,
    /// How long the run was in simulated time.
    pub simulated: Duration,
    /// A hash over everything that happened: the same for the same seed and options.
    pub log_hash: u64,
    /// How often each thing that should happen sometimes did.
    pub counters: BTreeMap<&'static str, u64>,
    /// The last things that happened, for people.
    pub trace: Vec<String>,
}

impl Report {
    /// The last things that happened, as text.
    pub fn last_lines(&self, count: usize) -> String {
        self.trace[self.trace.len().saturating_sub(count)..].join("\n")
    }

    /// How often something happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counters.get(what).copied().unwrap_or(0)
    }
}

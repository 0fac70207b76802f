//! The result of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Line, Violation};

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Broken invariants; empty if the run succeeded.
    pub violations: Vec<Violation>,
    /// Events handled by the protocol.
    pub events: u64,
    /// The simulated duration.
    pub simulated: Duration,
    /// A hash over the whole run: the same for the same seed and options.
    pub log_hash: u64,
    /// The number of occurrences of each event that should happen in some worlds.
    pub counters: BTreeMap<&'static str, u64>,
    /// The log, or its last part; empty unless it was requested.
    pub trace: Vec<Line>,
}

impl Report {
    /// The end of the log before a violation, filtered to its actor, processes and the network. Without an actor it
    /// includes all actors.
    pub fn around(&self, violation: &Violation, lines: usize) -> String {
        let concerns = |line: &&Line| match &violation.actor {
            _ if line.is_of_world => true,
            None => line.actor.is_some(),
            actor => line.actor == *actor,
        };
        let concerned: Vec<String> = self.trace.iter().filter(concerns).map(Line::to_string).collect();
        concerned[concerned.len().saturating_sub(lines)..].join("\n")
    }

    /// The whole log as text.
    pub fn whole(&self) -> String {
        let lines: Vec<String> = self.trace.iter().map(Line::to_string).collect();
        lines.join("\n")
    }

    /// The number of occurrences of an event.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

//! What came out of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Line, Violation};

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
    /// What happened, the last of it if it was much; empty unless it was asked for.
    pub trace: Vec<Line>,
}

impl Report {
    /// The last of what happened before a violation, shortened to what has to do with it: what happened to the actor that
    /// it is about, and what became of processes and the network. Without such an actor, what happened to any.
    pub fn around(&self, violation: &Violation, lines: usize) -> String {
        let concerns = |line: &&Line| match &violation.actor {
            _ if line.is_of_world => true,
            None => line.actor.is_some(),
            actor => line.actor == *actor,
        };
        let concerned: Vec<String> = self.trace.iter().filter(concerns).map(Line::to_string).collect();
        concerned[concerned.len().saturating_sub(lines)..].join("\n")
    }

    /// Everything that happened, as text.
    pub fn whole(&self) -> String {
        let lines: Vec<String> = self.trace.iter().map(Line::to_string).collect();
        lines.join("\n")
    }

    /// How often something happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counters.get(what).copied().unwrap_or(0)
    }
}

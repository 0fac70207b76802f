//! The log of a run: a hash over all entries, and the last ones as text.

use std::collections::{BTreeMap, VecDeque};

use elastin_types::{ActorId, Time};

/// The number of lines retained: enough to see how a violation came about.
const LINES_MAX: usize = 500_000;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The simulated time.
    pub at: Time,
    /// Whether it concerns the whole world or a whole process: joins, leaves and faults.
    pub is_of_world: bool,
    /// The affected actor, if there is one.
    pub actor: Option<ActorId>,
    /// The text.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:>12.6}  {}", self.at.0 as f64 / 1e9, self.text)
    }
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    hash: u64,
    keep_lines: bool,
    lines: VecDeque<Line>,
    counters: BTreeMap<&'static str, u64>,
}

impl Log {
    pub(crate) fn new(keep_lines: bool) -> Self {
        Self {
            keep_lines,
            ..Self::default()
        }
    }

    /// Logs an event of a node. The text is built only if lines are retained.
    pub(crate) fn note(&mut self, at: Time, actor: Option<&ActorId>, text: impl FnOnce() -> String) {
        self.push(at, false, actor, text);
    }

    /// Logs an event of the whole world or of a whole process.
    pub(crate) fn note_world(&mut self, at: Time, text: impl FnOnce() -> String) {
        self.push(at, true, None, text);
    }

    fn push(&mut self, at: Time, is_of_world: bool, actor: Option<&ActorId>, text: impl FnOnce() -> String) {
        if !self.keep_lines {
            return;
        }
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        let (actor, text) = (actor.cloned(), text());
        self.lines.push_back(Line {
            at,
            is_of_world,
            actor,
            text,
        });
    }

    /// Mixes a number that depends on the run into the hash.
    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Counts an event that should happen sometimes.
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_insert(0) += 1;
    }

    /// The number of events counted under this name.
    pub(crate) fn times(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_parts(self) -> (BTreeMap<&'static str, u64>, Vec<Line>) {
        (self.counters, self.lines.into())
    }
}

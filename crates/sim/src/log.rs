//! What happened: a hash over all of it, and the last of it as text.

use std::collections::{BTreeMap, VecDeque};

use elastin_types::{ActorId, Time};

/// How many lines before the end are kept: enough to see how a violation came about.
const LINES_MAX: usize = 500_000;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Time,
    /// Whether it concerns the whole world or a whole process: who comes and goes, and what breaks.
    pub is_of_world: bool,
    /// The actor that it is about, if it is about one.
    pub actor: Option<ActorId>,
    /// What.
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

    /// Notes something that happens in a node. The text is only made if somebody wants it.
    pub(crate) fn note(&mut self, at: Time, actor: Option<&ActorId>, text: impl FnOnce() -> String) {
        self.keep(at, false, actor, text);
    }

    /// Notes something that concerns the whole world or a whole process.
    pub(crate) fn note_world(&mut self, at: Time, text: impl FnOnce() -> String) {
        self.keep(at, true, None, text);
    }

    fn keep(&mut self, at: Time, is_of_world: bool, actor: Option<&ActorId>, text: impl FnOnce() -> String) {
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

    /// Mixes a number that depends on what happened into the hash.
    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Counts something that should happen sometimes.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_insert(0) += 1;
    }

    /// How often something happened.
    pub(crate) fn times(&self, what: &str) -> u64 {
        self.counters.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_parts(self) -> (BTreeMap<&'static str, u64>, Vec<Line>) {
        (self.counters, self.lines.into())
    }
}

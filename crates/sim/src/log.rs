//! What happened: a hash over all of it, and the last of it as text.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use elastin_types::Time;

/// How many lines before the end are kept: enough to see how a violation came about.
const LINES_MAX: usize = 500_000;

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    hash: u64,
    keep_lines: bool,
    lines: VecDeque<String>,
    counters: BTreeMap<&'static str, u64>,
}

impl Log {
    pub(crate) fn new(keep_lines: bool) -> Self {
        Self {
            keep_lines,
            ..Self::default()
        }
    }

    /// Notes something. The text is only made if somebody wants it.
    pub(crate) fn note(&mut self, now: Time, what: fmt::Arguments<'_>) {
        if !self.keep_lines {
            return;
        }
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines
            .push_back(format!("{:>12.6}  {what}", now.0 as f64 / 1_000_000_000.0));
    }

    /// Mixes a number that depends on what happened into the hash.
    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Counts something that should happen sometimes.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_insert(0) += 1;
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_parts(self) -> (BTreeMap<&'static str, u64>, Vec<String>) {
        (self.counters, self.lines.into())
    }
}

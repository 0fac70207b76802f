//! Source locations.

use serde::{Deserialize, Serialize};

/// A byte range in the source of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// The span from `start` up to, but not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end, "a span starts before it ends");
        Self { start, end }
    }

    /// The smallest span that covers both.
    pub fn to(self, other: Span) -> Span {
        Span::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// The text that the span covers.
    ///
    /// # Panics
    /// If the span is outside this source.
    pub fn text(self, source: &str) -> &str {
        &source[self.start..self.end]
    }
}

/// The one-based line and column of a byte; columns count characters.
pub(crate) fn line_and_column(source: &str, byte: usize) -> (usize, usize) {
    let before = &source[..source.floor_char_boundary(byte.min(source.len()))];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

//! Places in a policy's text.

use serde::{Deserialize, Serialize};

/// A range of bytes in a policy's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// From one byte to before another.
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end, "a span does not run backwards");
        Self { start, end }
    }

    /// The smallest span that has both in it.
    pub fn to(self, other: Span) -> Span {
        Span::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// The text at this place.
    ///
    /// # Panics
    /// If the span does not belong to this source.
    pub fn text(self, source: &str) -> &str {
        &source[self.start..self.end]
    }
}

/// The line and the column of a byte, both counted from one; the column in characters.
pub(crate) fn line_and_column(source: &str, byte: usize) -> (usize, usize) {
    let before = &source[..source.floor_char_boundary(byte.min(source.len()))];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

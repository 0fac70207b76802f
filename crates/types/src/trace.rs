//! W3C Trace Context: the position of a call in a distributed trace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The position of a call in a distributed trace (W3C Trace Context). It is parsed from and displayed as a
/// `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span that made the call.
    pub span_id: [u8; 8],
    /// The flags: bit 0 is set if the trace is recorded.
    pub flags: u8,
}

/// A text is not a valid `traceparent`. Start a new trace, as the standard requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a `traceparent` of the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")]
pub struct NotATraceParent;

impl TraceContext {
    /// Whether the trace is recorded.
    pub fn is_sampled(self) -> bool {
        self.flags & 1 != 0
    }

    /// A child span. Different numbers give different spans.
    pub fn child(self, number: u64) -> Self {
        let parent = u64::from_be_bytes(self.span_id);
        let span = mix(parent ^ mix(number));
        Self {
            // A zero span id is invalid.
            span_id: span.max(1).to_be_bytes(),
            ..self
        }
    }
}

/// Bijective bit mixer (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl FromStr for TraceContext {
    type Err = NotATraceParent;

    fn from_str(text: &str) -> Result<Self, NotATraceParent> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(NotATraceParent);
        let (version, trace_id, span_id, flags) = (next()?, next()?, next()?, next()?);
        let [version] = hex::<1>(version)?;
        // A later version may have more parts, which are ignored; version 255 is invalid.
        if version == 255 || (version == 0 && parts.next().is_some()) {
            return Err(NotATraceParent);
        }
        let (trace_id, span_id, [flags]) = (hex(trace_id)?, hex(span_id)?, hex(flags)?);
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(NotATraceParent);
        }
        Ok(Self {
            trace_id,
            span_id,
            flags,
        })
    }
}

/// Parses bytes from lower-case hexadecimal digits.
fn hex<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], NotATraceParent> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return Err(NotATraceParent);
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        for digit in digits {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(NotATraceParent),
            };
            *byte = *byte << 4 | value;
        }
    }
    Ok(bytes)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(out, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_round_trips() {
        let trace: TraceContext = GOOD.parse().unwrap();
        assert!(trace.is_sampled());
        assert_eq!(trace.to_string(), GOOD);
        // Additional parts of a later version are ignored.
        let later = format!("01{}-more", &GOOD[2..]);
        assert_eq!(later.parse(), Ok(trace));
    }

    #[test]
    fn invalid_traceparents_are_rejected() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é6-00f067aa0ba902b7-01",
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(NotATraceParent), "{bad}");
        }
    }

    #[test]
    fn children_are_distinct_spans_of_the_same_trace() {
        let parent: TraceContext = GOOD.parse().unwrap();
        let children: std::collections::BTreeSet<_> = (0..10_000).map(|number| parent.child(number).span_id).collect();
        assert_eq!(children.len(), 10_000);
        assert!(!children.contains(&parent.span_id));
        assert_eq!(parent.child(1).trace_id, parent.trace_id);
        assert_ne!(parent.child(1).child(1), parent.child(1));
    }
}

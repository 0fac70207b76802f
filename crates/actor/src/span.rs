//! Spans of turns that belong to a recorded trace.
//!
//! Only calls that carry a sampled trace context have one: other calls skip even the subscriber check.

use elastin_types::{Method, TraceContext};
use tracing::field::{Empty, display};

use crate::host::CellHandle;

/// The span of a turn. It is a root for the process's subscriber, so that the span of a caller on the same thread does
/// not become its parent. The trace context names the actual parent.
pub(crate) struct TurnSpan(tracing::Span);

impl TurnSpan {
    /// The span at `place` of the trace, a child of `parent`.
    pub(crate) fn begin(cell: &dyn CellHandle, place: TraceContext, parent: TraceContext) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self(tracing::info_span!(
            target: "elastin::turn",
            parent: None,
            "turn",
            trace_id = hex(&place.trace_id),
            span_id = hex(&place.span_id),
            parent_span_id = hex(&parent.span_id),
            actor = %cell.describe(None),
            function = Empty,
        ))
    }

    /// Enters the span for a poll on this thread.
    pub(crate) fn enter(&self) {
        self.0.with_subscriber(|(id, subscriber)| subscriber.enter(id));
    }

    /// Exits the span after a poll on this thread.
    pub(crate) fn exit(&self) {
        self.0.with_subscriber(|(id, subscriber)| subscriber.exit(id));
    }

    /// Closes the span when the turn has ended.
    pub(crate) fn end(self, cell: &dyn CellHandle, method: Method) {
        self.0.record("function", display(cell.describe(Some(method))));
    }
}

//! The size and sampling constants of calls and turns, with their reasons.

// Calls.

/// Maximum number of request context values: they are copied into every message that leaves the node.
pub(crate) const VALUES_MAX: usize = 32;

/// Scopes that a thread keeps in its pool: inline calls rarely nest deeper than this.
pub(crate) const POOLED_SCOPES_MAX: u32 = 64;

/// Inline calls within turns before the thread yields, so that a turn which only calls idle actors does not starve its
/// worker.
pub(crate) const INLINE_CALLS_MAX: u32 = 1024;

/// The same for threads outside any turn, which have other tasks to run.
pub(crate) const INLINE_CALLS_OUTSIDE_MAX: u32 = 128;

/// The number of inline calls that one call counts as if the thread busy-polled for its remote reply.
pub(crate) const AWAITED_CALL_WEIGHT: u32 = 16;

// Measured turns.

/// Calls of a measured turn that are recorded individually before sampling starts.
pub(crate) const EXACT_CALLS: u32 = 64;

/// The same for a turn with a weight above 1: there are many similar turns.
pub(crate) const EXACT_CALLS_WEIGHTED: u32 = 8;

/// Mean sampling stride of the calls after that. The stride is jittered: with a fixed one, callees in a periodic
/// pattern would be sampled always or never.
pub(crate) const CALL_STRIDE: u32 = 16;

/// The same beyond [`MANY_CALLS`], where a sparser sample is as accurate.
pub(crate) const CALL_STRIDE_SPARSE: u32 = 96;

/// Calls of one turn after which sampling becomes sparser.
pub(crate) const MANY_CALLS: u32 = 1024;

/// Polls of a measured turn that are timed individually before sampling starts.
pub(crate) const EXACT_POLLS: u32 = 64;

/// Mean sampling stride of the polls after that: the turn's time is well estimated by then, and a clock read is
/// expensive compared to a poll.
pub(crate) const POLL_STRIDE: u32 = 16;

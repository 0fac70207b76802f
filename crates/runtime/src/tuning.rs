//! The timing and size constants of the runtime, with their reasons. What an application may want to change is in
//! [`Settings`](crate::Settings) instead.

use std::time::Duration;

// How a turn runs (`cell::dispatch`).

/// How deep inline calls nest before a call is enqueued instead: each level uses stack of the caller's thread.
pub const INLINE_DEPTH_MAX: u32 = 64;

/// Default of [`Settings::inline_turn_max`](crate::Settings::inline_turn_max): about as long as handing a message over
/// to another thread takes.
pub(crate) const INLINE_TURN_MAX: Duration = Duration::from_nanos(250);

/// Default of [`Settings::resume_turn_max`](crate::Settings::resume_turn_max): less than waking a parked thread and
/// another one in return takes.
pub(crate) const RESUME_TURN_MAX: Duration = Duration::from_micros(10);

/// How many consecutive measured turns establish an actor's turn cost.
pub(crate) const COST_ESTABLISHED: u8 = 4;

/// The cost counters saturate here, so that one turn interrupted by the system does not reset the estimate.
pub(crate) const COST_COUNT_MAX: u8 = 2 * COST_ESTABLISHED;

/// How many spin-loop hints a caller waits for a busy actor with cheap turns: long enough for hundreds of them.
pub(crate) const SPINS_MAX: u32 = 1200;

/// How many spin-loop hints separate two probes at most.
pub(crate) const SPINS_PER_PROBE_MAX: u32 = 64;

/// How many attempts an [`AdaptiveBackoff`](crate::AdaptiveBackoff) skips at most after a failure. It starts at one and
/// doubles with each failure in a row: a single one may only be due to a busy machine.
pub(crate) const SKIPS_MAX: u32 = 64;

/// How many attempts it skips after the first failure that slowed down others; quadruples with each one in a row.
pub(crate) const SKIPS_IF_SEVERE: u32 = 8;

/// How often a turn suspends before workers resume it instead of its caller: the cost of a wake-up no longer matters
/// for such a long turn.
pub(crate) const CALLER_RESUMES_MAX: u32 = 16;

/// Minimum time for a woken caller to resume its turn; on average it gets half as long again.
pub(crate) const RESUME_TIMEOUT: Duration = Duration::from_millis(10);

// Mailboxes and batches.

/// Default mailbox capacity; further calls are rejected.
pub const MAILBOX_MAX: usize = 1024;

/// Backlog at which an actor is reported in a period even if none of its turns ends.
pub(crate) const BACKLOG_REPORTED: usize = 16;

/// How long a batch may last while other cells wait. A turn is never interrupted, so it can last longer.
pub(crate) const BATCH_TIME_MAX: Duration = Duration::from_millis(1);

/// How many turns of an actor may interleave; the others wait in the mailbox. As many as a mailbox holds: an actor with
/// more in flight should be several actors.
pub(crate) const INTERLEAVED_MAX: usize = 1024;

/// How many timers an activation may have. More of them indicate a bug, and the oldest are stopped.
pub(crate) const TIMERS_MAX: usize = 1024;

// Workers.

/// How many tasks a worker runs before it polls the injector queue first, so that injected tasks do not starve.
pub(crate) const INJECTOR_EVERY: u32 = 31;

/// Polling interval of the watcher: how long work may wait while another worker is idle.
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(1);

/// Minimum interval between reads of the CPU clock: a read is a system call, and shorter pauses cannot be slept anyway.
pub(crate) const CPU_READ_EVERY: Duration = Duration::from_millis(1);

/// How long a worker pauses at most before it checks the CPU quota again, so that throttling stays smooth.
pub(crate) const QUOTA_PAUSE_MAX: Duration = Duration::from_millis(10);

/// How much unused CPU time may accumulate, as the time in which it accrues.
pub(crate) const QUOTA_BURST: Duration = Duration::from_millis(10);

// The node.

/// Number of shards per registry table, so that threads rarely contend for a lock. Their sizes differ on purpose, so
/// that they never all grow at the same time.
pub(crate) const REGISTRY_SHARDS: usize = 64;

/// How often a shutdown checks whether all actors have finished.
pub(crate) const SHUTDOWN_POLL: Duration = Duration::from_millis(2);

/// How often empty cells are removed where no actors are passivated.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(60);

// Profiling.

/// How many turns of a period are measured individually before sampling starts.
pub(crate) const EXACT_TURNS: u64 = 64;

/// How many turns a sampled turn stands for on average. The stride varies around it: with a fixed one, callers that
/// alternate in a pattern would be seen always or never.
pub(crate) const STRIDE: u16 = 16;

/// The same for actors with many turns, where fewer samples are as accurate.
pub(crate) const STRIDE_OF_MANY: u16 = 96;

/// How many turns in a period count as many.
pub(crate) const MANY_TURNS: u64 = 1024;

/// Callers and callees that are counted per actor: more than a rule is likely to distinguish, few enough for a linear
/// search.
pub(crate) const EDGES_MAX: usize = 32;

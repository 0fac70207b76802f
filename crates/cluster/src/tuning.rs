//! Tuning constants of the transport and the node driver, with their reasons.

use std::time::Duration;

// Limits of connections.

/// The most bytes queued for one peer. A peer that falls this far behind is treated as overloaded.
pub const LINK_BYTES_MAX: usize = 64 << 20;

/// The time limit for connecting and for the handshake, so that a dead address does not hold frames for ever.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// The most concurrent handshakes of accepted connections. Unauthenticated peers cost memory, so further ones wait.
pub(crate) const HANDSHAKES_MAX: usize = 256;

/// The pause after a failed accept, for instance because too many files are open.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a node that dials all peers waits before it redials a lost one.
pub(crate) const REDIAL_AFTER: Duration = Duration::from_millis(100);

/// The pause after the first malformed frame of a peer. Each further one doubles it.
pub(crate) const PENALTY_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause. A penalty is forgotten after as long a time without malformed frames.
pub(crate) const PENALTY_PAUSE_MAX: Duration = Duration::from_secs(10);

// Buffers and batches.

/// Larger buffers are not reused, so that one large state does not stay allocated.
pub(crate) const KEPT_BYTES_MAX: usize = 1 << 20;

/// The least room for a read, so that one system call can return many small frames.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The most received frames in a batch: enough to amortize its cost, few enough that the last ones do not delay the first.
pub(crate) const RECEIVED_FRAMES_MAX: usize = 128;

/// The most frames to one peer in a batch, for the same reasons.
pub(crate) const SENT_FRAMES_MAX: usize = 64;

/// A connection without a write for this long is quiet. It is about the cost of a write: coalescing pays for frames that arrive
/// faster.
pub(crate) const QUIET_AFTER: Duration = Duration::from_micros(20);

/// The most bytes that a sending thread writes itself, so that it does not spend its time on copying large states.
pub(crate) const DIRECT_WRITE_BYTES_MAX: usize = 16 << 10;

// Busy-polling.

/// How long to poll before parking: twice the cost of a wake. The next call of a caller that calls again at once arrives sooner.
pub(crate) const BUSY_POLL_MAX: Duration = Duration::from_micros(100);

/// A poll that takes longer than this was preempted: the time belongs to another thread on the same core.
pub(crate) const OWN_TIME_MAX: Duration = Duration::from_micros(10);

/// A thread that keeps the core for longer than this is compute-bound. Threads that exchange frames run for less.
pub(crate) const YIELD_COST_MAX: Duration = Duration::from_micros(100);

/// A costly yield suppresses further ones for so many times its duration, which bounds the loss to two per cent.
pub(crate) const NO_YIELD_FACTOR: u32 = 64;

/// The longest suppression, in case the whole process was stopped.
pub(crate) const NO_YIELD_MAX: Duration = Duration::from_secs(1);

/// How long a socket stays disarmed after a caller has busy-polled it. Frames that no caller awaits are delayed by as much. A
/// shorter timeout would wake the reader while callers still busy-poll.
pub(crate) const DISARMED_MAX: Duration = Duration::from_millis(10);

// I/O threads.

/// The most events that one poll of the system returns.
pub(crate) const SOCKET_EVENTS_MAX: usize = 256;

/// The pause after a failed poll of the system, so that a persistent error does not keep a core busy.
pub(crate) const IO_ERROR_PAUSE: Duration = Duration::from_millis(10);

/// The period of the follower's checks. A follow-up that spans a whole period has taken too long.
pub(crate) const FOLLOWER_CHECK_EVERY: Duration = Duration::from_millis(1);

/// After so many checks without a new follow-up, the follower parks until the next one: an idle process has no periodic wakes.
pub(crate) const FOLLOWER_IDLE_CHECKS_MAX: u32 = 50;

/// A follow-up that takes longer than this per received frame is slow: waking another thread for it would have cost less than the
/// delay of the frames behind it.
pub(crate) const SLOW_PER_FRAME: Duration = Duration::from_micros(100);

// The node driver.

/// The most replies of inline turns in a batch.
pub(crate) const REPLY_BATCH_MAX: usize = 64;

/// The longest that the first reply of such a batch is delayed.
pub(crate) const REPLY_DELAY_MAX: Duration = Duration::from_micros(50);

/// The fewest callers completed together whose next calls are batched. A lone caller is fastest if it sends its call itself.
pub(crate) const BATCHED_CALLERS_MIN: usize = 2;

/// The most calls in a batch: a full batch is sent at once.
pub(crate) const BATCHED_CALLS_MAX: usize = 32;

/// The longest that a batch is delayed if other tasks keep the batching task from running.
pub(crate) const BATCH_WAIT_MAX: Duration = Duration::from_millis(1);

//! Settings of a runtime.

use std::time::Duration;

use elastin_types::NodeId;

/// Default mailbox capacity; further calls are rejected.
pub const MAILBOX_MAX: usize = 1024;

/// How deep inline calls nest before a call is enqueued instead: each level uses stack of the caller's thread.
pub const INLINE_DEPTH_MAX: u32 = 64;

/// Default of [`Settings::inline_turn_max`]: about as long as handing a message over to another thread takes.
const BRIEF_MAX: Duration = Duration::from_nanos(250);

/// Default of [`Settings::resume_turn_max`]: less than waking a parked thread and another one in return takes.
const SHORT_MAX: Duration = Duration::from_micros(10);

/// Settings of a runtime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node id of this process.
    pub node: NodeId,
    /// How many threads run turns.
    pub workers: usize,
    /// CPU quota of the whole process, in cores; `None` for no limit.
    pub cpu_share: Option<f64>,
    /// Mailbox capacity of an actor.
    pub mailbox_max: usize,
    /// How long an actor is idle before it is passivated; `None` for never.
    pub idle_max: Option<Duration>,
    /// Deadline of calls and one-way messages that have to wait and were given none; `None` for no deadline.
    pub default_deadline: Option<Duration>,
    /// Turns up to this duration run inline on the thread that sends a one-way message, if the actor is idle and its
    /// recent turns were that cheap. Zero always enqueues one-way messages.
    pub inline_turn_max: Duration,
    /// Suspended turns that compute up to this long are resumed by their caller, if the actor's recent turns were that
    /// cheap. Zero leaves all suspended turns to the workers.
    pub resume_turn_max: Duration,
    /// Whether actors are profiled. Policies see nothing without it; turning it off serves to measure its cost.
    pub profiling: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: NodeId(0),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_share: None,
            mailbox_max: MAILBOX_MAX,
            idle_max: None,
            default_deadline: None,
            inline_turn_max: BRIEF_MAX,
            resume_turn_max: SHORT_MAX,
            profiling: true,
        }
    }
}

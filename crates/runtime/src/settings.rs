//! What can be set about a runtime.

use std::time::Duration;

use elastin_types::NodeId;

/// How many messages an actor's mailbox takes before callers are turned away.
pub const MAILBOX_MAX: usize = 1024;

/// How deep inline calls nest before a call takes the mailbox instead: each level takes some stack of the caller's thread.
pub const INLINE_DEPTH_MAX: u32 = 64;

/// How long a turn takes at most that is brief: about as long as it takes to hand a message over to another thread.
const BRIEF_MAX: Duration = Duration::from_nanos(250);

/// How long a turn takes at most that is short: less than it takes to wake a sleeping thread, and another one again.
const SHORT_MAX: Duration = Duration::from_micros(10);

/// How a runtime is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node that this process is.
    pub node: NodeId,
    /// How many threads run turns.
    pub workers: usize,
    /// How much CPU time the whole process may use, in cores; `None` for all there is.
    pub cpu_share: Option<f64>,
    /// How many messages an actor's mailbox takes.
    pub mailbox_max: usize,
    /// How long an actor is idle before it is passivated; `None` for never.
    pub idle_max: Option<Duration>,
    /// The deadline of a call or tell that has to wait and was given none; `None` for none.
    pub default_deadline: Option<Duration>,
    /// How long turns take at most that whoever tells them runs on its own thread, if the actor is idle and its turns were that
    /// brief so far. Zero for none: all that is told takes the mailbox.
    pub brief_max: Duration,
    /// How long turns compute at most with which their caller goes on after they have waited for something, if the actor's turns
    /// were that short so far. Zero for none: workers go on with all that wait.
    pub short_max: Duration,
    /// Whether actors are measured. Policies see nothing without it; off is for measuring what it costs.
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
            brief_max: BRIEF_MAX,
            short_max: SHORT_MAX,
            profiling: true,
        }
    }
}

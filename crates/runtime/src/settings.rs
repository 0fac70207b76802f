//! Settings of a runtime.

use std::time::Duration;

use elastin_types::NodeId;

use crate::tuning::{INLINE_TURN_MAX, MAILBOX_MAX, RESUME_TURN_MAX};

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
            inline_turn_max: INLINE_TURN_MAX,
            resume_turn_max: RESUME_TURN_MAX,
            profiling: true,
        }
    }
}

//! Reminders: what an actor is told at a time that it has set, also after a crash.

use serde::{Deserialize, Serialize};

/// The longest name of a reminder: it is part of a row's key, beside the actor's own.
pub const REMINDER_NAME_BYTES_MAX: usize = 256;

/// One due time of a reminder of an actor.
///
/// It is also the id by which an actor knows one that it has acted on: the same one may come more than once, and an actor
/// that keeps the id with its state acts once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reminder {
    /// The name that the actor has given it.
    pub name: String,
    /// When it was due, in milliseconds since the Unix epoch.
    pub due_ms: u64,
}

impl Reminder {
    /// The function that an actor is told by. No handler has this name, because a space is not part of any.
    pub const FUNCTION: &'static str = "on reminder";
}

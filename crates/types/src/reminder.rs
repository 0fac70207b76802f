//! Reminders: durable timers of actors, which survive crashes.

use serde::{Deserialize, Serialize};

/// Maximum length of a reminder's name: it is part of a row's key, together with the actor's id.
pub const REMINDER_NAME_BYTES_MAX: usize = 256;

/// One due time of a reminder of an actor.
///
/// It also serves as a dedup key: delivery is at least once, and an actor that records processed reminders in its state
/// can skip duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reminder {
    /// The name chosen by the actor.
    pub name: String,
    /// When it was due, in milliseconds since the Unix epoch.
    pub due_ms: u64,
}

impl Reminder {
    /// The function that receives reminders. No handler can have this name, because it contains a space.
    pub const FUNCTION: &'static str = "on reminder";
}

//! What an actor can ask about its reminders.

use std::time::Duration;

use elastin_types::{REMINDER_NAME_BYTES_MAX, Reminder};

/// What an actor asks about its reminders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReminderRequest {
    /// Sets one, in the place of any that has the same name.
    Set {
        /// Its name.
        name: String,
        /// How long until it is due.
        after: Duration,
        /// How long from one due time to the next; `None` if there is only one.
        every: Option<Duration>,
    },
    /// Forgets one.
    Forget {
        /// Its name.
        name: String,
    },
}

impl ReminderRequest {
    /// The name of the reminder.
    pub fn name(&self) -> &str {
        match self {
            ReminderRequest::Set { name, .. } | ReminderRequest::Forget { name } => name,
        }
    }

    /// Whether the request makes sense for an actor type that takes reminders or does not.
    pub fn check(&self, kind: &'static str, takes_reminders: bool) -> Result<(), ReminderError> {
        let bytes = self.name().len();
        if bytes > REMINDER_NAME_BYTES_MAX {
            return Err(ReminderError::NameTooLong { bytes });
        }
        match takes_reminders {
            true => Ok(()),
            false => Err(ReminderError::NoHandler(kind)),
        }
    }
}

/// Why a reminder was not set or forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReminderError {
    /// The actor type has no handler for reminders. Nothing was changed; write one.
    #[error("a `{0}` has no `#[on(reminder)]` handler")]
    NoHandler(&'static str),
    /// The name is too long. Nothing was changed.
    #[error("a reminder's name of {bytes} bytes is longer than the {REMINDER_NAME_BYTES_MAX} bytes allowed")]
    NameTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The store did not answer, or there is none. It may have been set or forgotten all the same. Try again: to set the
    /// same reminder twice is to set it once.
    #[error("reminders can't be kept: {0}")]
    Unavailable(String),
}

/// Called once with the reminder that was set, or the one that was forgotten.
pub type ReminderDone = Box<dyn FnOnce(Result<Option<Reminder>, ReminderError>) + Send>;

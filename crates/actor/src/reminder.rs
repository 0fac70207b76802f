//! Requests of an actor about its reminders.

use std::time::Duration;

use elastin_types::{REMINDER_NAME_BYTES_MAX, Reminder};

/// A request of an actor about its reminders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReminderRequest {
    /// Sets a reminder, replacing any with the same name.
    Set {
        /// Its name.
        name: String,
        /// The delay until it is due.
        after: Duration,
        /// The interval between due times; `None` for a single one.
        every: Option<Duration>,
    },
    /// Deletes a reminder.
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

    /// Validates the request for an actor type.
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

/// A reminder could not be set or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReminderError {
    /// The actor type has no handler for reminders. Nothing was changed; add one.
    #[error("actor type `{0}` has no `#[on(reminder)]` handler")]
    NoHandler(&'static str),
    /// The name is too long. Nothing was changed.
    #[error("a reminder name of {bytes} bytes is longer than the {REMINDER_NAME_BYTES_MAX} bytes allowed")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The store did not reply, or there is none. The reminder may have been set or deleted nevertheless. Retry:
    /// setting a reminder is idempotent.
    #[error("the reminder could not be stored: {0}")]
    Unavailable(String),
}

/// Called once with the reminder that was set or deleted.
pub type ReminderDone = Box<dyn FnOnce(Result<Option<Reminder>, ReminderError>) + Send>;

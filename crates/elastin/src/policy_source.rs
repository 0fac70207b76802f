//! The text of a policy and its file name.

use serde::{Deserialize, Serialize};

/// The text of a policy and its file name. [`policy!`](crate::policy) includes a file at compile time;
/// [`PolicySource::new`] takes any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySource {
    pub(crate) file_name: String,
    pub(crate) text: String,
}

impl PolicySource {
    /// A policy from its text. `file_name` is used in messages only.
    pub fn new(file_name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            file_name: file_name.into(),
            text: text.into(),
        }
    }

    /// The policy without rules: actors stay where they are.
    pub(crate) fn none() -> Self {
        Self::new("no policy", "")
    }

    /// The file name, as messages show it.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// The policy as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

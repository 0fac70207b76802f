//! The text of a policy, and what to call it.

use serde::{Deserialize, Serialize};

/// The text of a policy, and what messages call it. [`policy!`](crate::policy) makes one of a file when the program is
/// compiled; [`PolicySource::new`] makes one of any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySource {
    pub(crate) file_name: String,
    pub(crate) text: String,
}

impl PolicySource {
    /// A policy's text. `file_name` is only what messages call it.
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

    /// What messages call it.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// The policy as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

//! Output of the commands.

use std::io::Write;

use serde::Serialize;

/// Prints to standard output.
pub(crate) fn print(text: &str) {
    // A closed pipe means that the reader does not want the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

//! Faults that can't be made on a machine.

use std::io::Write;

/// Set where everything can be made, as in continuous integration: there a fault that is skipped is a mistake.
const SKIP_NOTHING: &str = "ELASTIN_SKIP_NO_FAULTS";

/// Says that a test is skipped because a fault can't be made here. Straight to the terminal: what a test that passes prints
/// is not shown.
///
/// # Panics
/// If the environment variable `ELASTIN_SKIP_NO_FAULTS` is set to `1`.
pub fn skipped(why: &str) {
    let allowed = std::env::var_os(SKIP_NOTHING).is_none_or(|set| set != "1");
    assert!(allowed, "{SKIP_NOTHING} is set, but a fault can't be made here: {why}");
    // Without a terminal there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

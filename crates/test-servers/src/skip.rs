//! Faults that can't be injected on a machine.

use std::io::Write;

/// Set where every fault can be injected, as in continuous integration: there a skipped fault is an error.
const SKIP_NOTHING: &str = "ELASTIN_SKIP_NO_FAULTS";

/// Reports that a test is skipped because a fault can't be injected here. It prints to the terminal, because the output
/// of a passing test is hidden.
///
/// # Panics
/// If the environment variable `ELASTIN_SKIP_NO_FAULTS` is set to `1`.
pub fn skipped(why: &str) {
    let allowed = std::env::var_os(SKIP_NOTHING).is_none_or(|set| set != "1");
    assert!(allowed, "{SKIP_NOTHING} is set, but a fault can't be made here: {why}");
    // Without a terminal the message is dropped.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

//! Record, the last step of a decision: a command to store it whenever its outcome changes.

use crate::{Decision, Outcome, Refusal};

/// Records the decision with this outcome.
pub(crate) fn record<Command: From<Decision>>(decision: Decision, outcome: Outcome, out: &mut Vec<Command>) {
    out.push(Decision { outcome, ..decision }.into());
}

/// Records that nothing is changed, and why.
pub(crate) fn refuse<Command: From<Decision>>(decision: Decision, refusal: Refusal, out: &mut Vec<Command>) {
    record(decision, Outcome::Refused(refusal), out);
}

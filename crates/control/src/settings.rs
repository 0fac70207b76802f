//! What an operator can set about elasticity, and the constants that follow from the language.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// For how many periods a relation, such as a `colocate`, stays in force after it last fired.
pub const RELATION_PERIODS: u32 = 3;

/// For how many periods in a row a server must be beyond a bound, but within the noise margin of it, before that counts.
pub const HYSTERESIS_PERIODS: u32 = 2;

/// For how many periods in a row the reason of a reservation must be gone before it is released.
pub const RELEASE_PERIODS: u32 = 3;

/// A reserved actor that uses less than this part of what it used at reservation no longer needs a server of its own.
pub const RELEASE_USE: f64 = 0.5;

/// How many periods a promise of resources or of a dedicated server lasts if nobody comes. Two full periods pass between
/// a move's start and the first statistics in which the actor counts in full; one more is slack.
pub(crate) const PROMISE_PERIODS: u32 = 3;

/// The parts of a period that each step of a round may take. Their sum is below one, so that a round ends before the next.
pub(crate) mod part {
    /// How long a global manager waits for the other servers' reports after the first.
    pub(crate) const GATHER: u32 = 8;
    /// How long a local manager waits for the answer to its report: longer than the gathering.
    pub(crate) const REPORT: u32 = 4;
    /// How long it waits for the host of the other end of a relation.
    pub(crate) const SETTLE: u32 = 8;
    /// How long it waits for a target's admission.
    pub(crate) const QUERY: u32 = 8;
    /// How long a global manager waits for the others' votes.
    pub(crate) const VOTE: u32 = 8;
}

/// What an operator can set. The same for all managers of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The elasticity period: how often statistics are evaluated.
    pub period: Duration,
    /// How far beyond a bound, in percentage points, a server may be for noise.
    pub noise_margin: f64,
    /// The cluster never gets smaller than this.
    pub servers_min: u32,
    /// The cluster never gets larger than this, reserved servers included.
    pub servers_max: u32,
    /// How long to wait for a server that was asked for before asking again.
    pub provision_limit: Duration,
    /// How many units of actors a report lists; the others are summed up.
    pub report_units_max: usize,
    /// How many actors a server may send away in one period, so that a change of load does not freeze it.
    pub moves_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(60),
            noise_margin: 5.0,
            servers_min: 1,
            servers_max: 64,
            provision_limit: Duration::from_secs(120),
            report_units_max: 64,
            moves_max: 256,
        }
    }
}

impl Settings {
    /// The time limit of a step that may take one `part`-th of a period.
    pub(crate) fn limit(&self, part: u32) -> Duration {
        self.period / part
    }
}

//! Operator settings for elasticity, and constants defined by the policy language.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Periods that a relation, such as a `colocate`, stays in force after it last fired.
pub const RELATION_PERIODS: u32 = 3;

/// Consecutive periods that a server must be beyond a bound, but within the noise margin, before that counts.
pub const HYSTERESIS_PERIODS: u32 = 2;

/// Consecutive periods that a reservation's reason must be gone before release.
pub const RELEASE_PERIODS: u32 = 3;

/// Fraction of its use at reservation below which a reserved actor no longer needs a dedicated server.
pub const RELEASE_USE: f64 = 0.5;

/// Periods that a promise of resources or of a dedicated server lasts if no actor arrives. Two full periods pass
/// between a move's start and the first complete statistics of the actor; one more is slack.
pub(crate) const PROMISE_PERIODS: u32 = 3;

/// Divisors of a period that bound each step of a round. Their sum is below one period, so that a round ends before the
/// next.
pub(crate) mod part {
    /// A global manager's wait for the other servers' reports after the first.
    pub(crate) const COLLECT: u32 = 8;
    /// A local manager's wait for the reply to its report: longer than [`COLLECT`].
    pub(crate) const REPORT: u32 = 4;
    /// A local manager's wait for the host of the other end of a relation.
    pub(crate) const SETTLE: u32 = 8;
    /// A local manager's wait for a target's admission.
    pub(crate) const QUERY: u32 = 8;
    /// A global manager's wait for the others' votes.
    pub(crate) const VOTE: u32 = 8;
}

/// Operator settings, the same for all managers of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The elasticity period: the interval at which rules are evaluated.
    pub period: Duration,
    /// Percentage points beyond a bound that are attributed to noise.
    pub noise_margin: f64,
    /// Minimum number of servers.
    pub servers_min: u32,
    /// Maximum number of servers, reserved servers included.
    pub servers_max: u32,
    /// Wait for a requested server before it is requested again.
    pub provision_limit: Duration,
    /// Number of units listed in a report; the others are summed up.
    pub report_units_max: usize,
    /// Number of actors that a server may move away in one period, so that a change of load does not freeze it.
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

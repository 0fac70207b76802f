//! State that local and global managers have in common.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::{NodeId, Time};

use crate::decision::CANDIDATES_MAX;
use crate::random::Random;
use crate::{Candidate, Cause, Change, Config, Decision, DecisionId, Manager, Member, Outcome, Settings};

/// The surroundings of a manager, and the counters behind its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Time of the event being handled.
    pub(crate) now: Time,
    pub(crate) node: NodeId,
    pub(crate) policy: Arc<Policy>,
    /// The settings in force: the policy's period overrides the operator's.
    pub(crate) settings: Settings,
    pub(crate) members: Vec<Member>,
    pub(crate) random: Random,
    configured: Settings,
    manager: Manager,
    decisions: u64,
    numbers: u64,
}

impl Context {
    pub(crate) fn new(manager: Manager, config: Config) -> Self {
        Self {
            now: Time::ZERO,
            node: config.node,
            settings: in_force(&config.policy, &config.settings),
            policy: config.policy,
            members: Vec::new(),
            random: Random::new(config.seed),
            configured: config.settings,
            manager,
            decisions: 0,
            numbers: 0,
        }
    }

    pub(crate) fn change_policy(&mut self, policy: Arc<Policy>) {
        self.settings = in_force(&policy, &self.configured);
        self.policy = policy;
    }

    pub(crate) fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// The nodes with a global manager.
    pub(crate) fn globals(&self) -> impl Iterator<Item = NodeId> {
        self.members
            .iter()
            .filter(|member| member.global)
            .map(|member| member.node)
    }

    /// Deadline of a step that may take one `part`-th of a period.
    pub(crate) fn deadline(&self, part: u32) -> Time {
        self.now + self.settings.period / part
    }

    /// Deadline of something that may take this many periods.
    pub(crate) fn after_periods(&self, periods: u32) -> Time {
        self.now + self.settings.period * periods
    }

    /// A number that this manager has not used before.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A new decision of this manager.
    pub(crate) fn decision(
        &mut self,
        cause: Option<Cause>,
        change: Change,
        mut candidates: Vec<Candidate>,
    ) -> Decision {
        self.decisions += 1;
        candidates.truncate(CANDIDATES_MAX);
        Decision {
            id: DecisionId {
                manager: self.manager,
                sequence: self.decisions,
            },
            at: self.now,
            cause,
            change,
            candidates,
            outcome: Outcome::Proposed,
        }
    }
}

fn in_force(policy: &Policy, configured: &Settings) -> Settings {
    Settings {
        period: policy.period().unwrap_or(configured.period),
        ..configured.clone()
    }
}

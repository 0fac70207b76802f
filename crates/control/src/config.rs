//! What a manager is made with.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::NodeId;

use crate::Settings;

/// What a manager, local or global, is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node it runs on. A local manager manages this very server.
    pub node: NodeId,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// What the operator has set. A period that the policy names wins over the one set here.
    pub settings: Settings,
    /// Decides its random choices.
    pub seed: u64,
}

impl Config {
    /// The settings with the period that the policy names, if it does.
    pub(crate) fn effective_settings(&self) -> Settings {
        Settings {
            period: self.policy.period().unwrap_or(self.settings.period),
            ..self.settings.clone()
        }
    }
}

//! Configuration of a manager.

use std::sync::Arc;

use elastin_policy::Policy;
use elastin_types::NodeId;

use crate::Settings;

/// Configuration of a local or global manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The manager's node. A local manager manages this server.
    pub node: NodeId,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Operator settings. A period named in the policy overrides the one here.
    pub settings: Settings,
    /// Seed of its random choices.
    pub seed: u64,
}

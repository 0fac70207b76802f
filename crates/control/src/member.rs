//! Cluster members, as far as elasticity is concerned.

use elastin_types::{NodeId, ServerState};
use serde::{Deserialize, Serialize};

/// One member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member's node.
    pub node: NodeId,
    /// Whether it hosts actors, and so counts as a server.
    pub hosts: bool,
    /// Whether it accepts actors or is being drained.
    pub state: ServerState,
    /// Whether a global manager runs there.
    pub global: bool,
}

//! New actors that wait for an elasticity manager to place them.

use std::collections::HashMap;

use elastin_cluster::NodeDriver;
use elastin_types::{ActorId, NodeId};

/// The actors that wait, by the id of their request.
#[derive(Default)]
pub(crate) struct Placements {
    waiting: HashMap<u64, ActorId>,
    requested: u64,
}

impl Placements {
    /// Adds an actor, and returns the id of its request.
    pub(crate) fn request(&mut self, actor: ActorId) -> u64 {
        self.requested += 1;
        self.waiting.insert(self.requested, actor);
        self.requested
    }

    /// Passes the manager's choice to the driver: the actor's node, or none if no server takes it.
    pub(crate) fn placed(&mut self, driver: &NodeDriver, request: u64, node: Option<NodeId>) {
        if let Some(actor) = self.waiting.remove(&request) {
            driver.placed(actor, node);
        }
    }
}

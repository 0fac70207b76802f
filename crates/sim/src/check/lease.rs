//! Source: the design's "on a node whose lease may have run out no turn starts, no reply leaves and no write lands
//! before anyone may take over". A node may be taken over from as soon as any node has a view in which it has stopped.

use std::collections::BTreeMap;

use elastin_types::{NodeId, Time};

use super::Violation;

/// A node does nothing after the end of its lease.
#[derive(Debug, Default)]
pub(crate) struct NothingAfterTheLease {
    taken_over: BTreeMap<NodeId, Time>,
}

impl NothingAfterTheLease {
    /// Some node has a view in which this node has stopped. Whether it is the first one.
    pub(crate) fn taken_over(&mut self, node: NodeId, now: Time) -> bool {
        let is_first = !self.taken_over.contains_key(&node);
        self.taken_over.entry(node).or_insert(now);
        is_first
    }

    /// A node has an effect that others can observe.
    pub(crate) fn acts(&self, node: NodeId, now: Time, action: &str) -> Result<(), Violation> {
        match self.taken_over.get(&node) {
            None => Ok(()),
            Some(since) => {
                let late = now.since(*since);
                let description = format!("{node} {action} {late:?} after others may have taken over from it");
                Violation::of("nothing happens after the end of a lease", None, description)
            }
        }
    }
}

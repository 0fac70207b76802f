//! Source: the design's "on a node whose lease may have run out no turn starts, no reply leaves and no write lands before
//! anyone may take over". A node may be taken over from as soon as anybody has a view in which it has stopped.

use std::collections::BTreeMap;

use elastin_types::{NodeId, Time};

use super::Violation;

/// After the end of its lease a node does nothing.
#[derive(Debug, Default)]
pub(crate) struct NothingAfterTheLease {
    taken_over: BTreeMap<NodeId, Time>,
}

impl NothingAfterTheLease {
    /// Somebody has a view in which this node has stopped; true if that is news.
    pub(crate) fn taken_over(&mut self, node: NodeId, now: Time) -> bool {
        let is_news = !self.taken_over.contains_key(&node);
        self.taken_over.entry(node).or_insert(now);
        is_news
    }

    /// A node does something that others can see.
    pub(crate) fn acts(&self, node: NodeId, now: Time, what: &str) -> Result<(), Violation> {
        match self.taken_over.get(&node) {
            None => Ok(()),
            Some(since) => {
                let late = now.since(*since);
                let what = format!("{node} {what} {late:?} after others may have taken over from it");
                Violation::of("nothing happens after the end of a lease", None, what)
            }
        }
    }
}

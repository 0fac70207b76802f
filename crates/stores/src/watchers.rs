//! The watches of a local coordination store, each with its next revision to deliver.

use std::collections::BTreeMap;

use elastin_protocol::store::{CoordinationModel, Revision, WatchSink};

use crate::worker::contain;

/// Identifies a watch of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchId(pub(crate) u64);

struct Watcher {
    prefix: String,
    /// The first revision that has not been delivered.
    next: Revision,
    sink: WatchSink,
}

/// All watches of one store.
#[derive(Default)]
pub(crate) struct Watchers {
    watchers: BTreeMap<WatchId, Watcher>,
}

impl Watchers {
    pub(crate) fn add(&mut self, id: WatchId, prefix: String, next: Revision, sink: WatchSink) {
        self.watchers.insert(id, Watcher { prefix, next, sink });
    }

    pub(crate) fn remove(&mut self, id: WatchId) {
        self.watchers.remove(&id);
    }

    /// Delivers the new changes to every watch. The whole model must be durable.
    pub(crate) fn deliver(&mut self, model: &CoordinationModel) {
        self.watchers.retain(|_, watcher| watcher.deliver(model));
    }
}

impl Watcher {
    /// Delivers the new changes. Whether the watch stays open.
    fn deliver(&mut self, model: &CoordinationModel) -> bool {
        while self.next <= model.revision() {
            match model.changes(&self.prefix, self.next) {
                Ok(batch) => {
                    self.next = batch.revision.next();
                    if !batch.changes.is_empty() {
                        contain(|| (self.sink)(Ok(batch)));
                    }
                }
                Err(error) => {
                    contain(|| (self.sink)(Err(error)));
                    return false;
                }
            }
        }
        true
    }
}

//! Pending changes to member records. A change stays pending until the records reflect it, whatever happens to requests.

use std::collections::BTreeMap;

use elastin_types::NodeId;

use super::MemberRecord;
use crate::store::{Commit, CoordinationRequest, Entry, KeyState};

/// Pending change to one member's record.
#[derive(Clone, Copy, Debug, Default)]
struct PendingWrite {
    draining: Option<bool>,
    /// It has certainly stopped.
    stopped: bool,
    /// Its lease is to be revoked.
    revoke: bool,
    /// A request for it is in flight.
    in_flight: bool,
}

/// All pending writes, at most one per member.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    by_node: BTreeMap<NodeId, PendingWrite>,
}

impl PendingWrites {
    pub(super) fn drain(&mut self, node: NodeId, draining: bool) {
        self.by_node.entry(node).or_default().draining = Some(draining);
    }

    pub(super) fn end(&mut self, node: NodeId, stopped: bool) {
        let write = self.by_node.entry(node).or_default();
        write.revoke = true;
        write.stopped |= stopped;
    }

    /// A request for this member has completed. An unfulfilled write is submitted again.
    pub(super) fn answered(&mut self, node: NodeId) {
        if let Some(write) = self.by_node.get_mut(&node) {
            write.in_flight = false;
        }
    }

    /// Whether any is unfulfilled.
    pub(super) fn any(&self) -> bool {
        !self.by_node.is_empty()
    }

    /// The requests to submit now, given the records. Drops fulfilled writes.
    pub(super) fn requests<'a>(
        &mut self,
        entry_of: impl Fn(NodeId) -> Option<(&'a Entry, &'a MemberRecord)>,
    ) -> Vec<(NodeId, CoordinationRequest)> {
        let mut requests = Vec::new();
        self.by_node.retain(|node, write| {
            let Some((entry, record)) = entry_of(*node) else {
                return false;
            };
            let Some(next) = write.next(entry, record) else {
                return false;
            };
            if !std::mem::replace(&mut write.in_flight, true) {
                requests.push((*node, next));
            }
            true
        });
        requests
    }
}

impl PendingWrite {
    fn next(&self, entry: &Entry, record: &MemberRecord) -> Option<CoordinationRequest> {
        let mut wanted = record.clone();
        wanted.draining = self.draining.unwrap_or(record.draining);
        wanted.stopped |= self.stopped;
        if wanted != *record {
            let unchanged = KeyState::ModifiedAt(entry.modified);
            let commit = Commit::default().when(&entry.key, unchanged);
            return Some(commit.and_put(&entry.key, wanted.encode(), entry.lease).into());
        }
        match entry.lease {
            Some(lease) if self.revoke => Some(CoordinationRequest::Revoke { lease }),
            _ => None,
        }
    }
}

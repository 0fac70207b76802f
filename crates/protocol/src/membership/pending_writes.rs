//! What this member wants changed in records. A wish stays until the records are so, whatever happens to the requests.

use std::collections::BTreeMap;

use elastin_types::NodeId;

use super::MemberRecord;
use crate::store::{Commit, CoordinationRequest, Entry, KeyState};

/// What is wanted of one member.
#[derive(Clone, Copy, Debug, Default)]
struct PendingWrite {
    draining: Option<bool>,
    /// It is certainly gone.
    stopped: bool,
    /// Its lease shall end.
    gone: bool,
    /// A request for it is under way.
    asked: bool,
}

/// All pending_writes, at most one per member.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    pending_writes: BTreeMap<NodeId, PendingWrite>,
}

impl PendingWrites {
    pub(super) fn drain(&mut self, node: NodeId, draining: bool) {
        self.pending_writes.entry(node).or_default().draining = Some(draining);
    }

    pub(super) fn end(&mut self, node: NodeId, stopped: bool) {
        let wish = self.pending_writes.entry(node).or_default();
        wish.gone = true;
        wish.stopped |= stopped;
    }

    /// A request for this member has ended: if the wish is not fulfilled it is asked for again.
    pub(super) fn answered(&mut self, node: NodeId) {
        if let Some(wish) = self.pending_writes.get_mut(&node) {
            wish.asked = false;
        }
    }

    /// Whether one is not fulfilled.
    pub(super) fn are_left(&self) -> bool {
        !self.pending_writes.is_empty()
    }

    /// What is to be asked for now, given the records; what is fulfilled is forgotten.
    pub(super) fn requests<'a>(
        &mut self,
        entry_of: impl Fn(NodeId) -> Option<(&'a Entry, &'a MemberRecord)>,
    ) -> Vec<(NodeId, CoordinationRequest)> {
        let mut requests = Vec::new();
        self.pending_writes.retain(|node, wish| {
            let Some((entry, record)) = entry_of(*node) else {
                return false;
            };
            let Some(next) = wish.next(entry, record) else {
                return false;
            };
            if !std::mem::replace(&mut wish.asked, true) {
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
            Some(lease) if self.gone => Some(CoordinationRequest::Revoke { lease }),
            _ => None,
        }
    }
}

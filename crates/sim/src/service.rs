//! The model of the coordination service: [`CoordinationModel`] of the protocol defines the requests, and this module
//! adds faults.

use std::collections::BTreeMap;

use elastin_protocol::membership::{CLUSTER_PREFIX, WatchId};
use elastin_protocol::store::{
    CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Entry, RANGE_LIMIT_MAX, Revision,
    StoreFailure, StoredLease, WatchBatch,
};
use elastin_types::Time;

use crate::world::Pid;

/// The watch of one process.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    next: Revision,
    /// Whether a notification is in flight.
    due: bool,
}

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Service {
    model: CoordinationModel,
    /// Since when the service is down, if it is.
    down_since: Option<Time>,
    /// The number of the current leader. Requests to an earlier one are lost.
    leader: u64,
    watches: BTreeMap<Pid, Watch>,
}

impl Service {
    pub(crate) fn leader(&self) -> u64 {
        self.leader
    }

    /// Handles a request that was sent to this leader.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        leader: u64,
        request: CoordinationRequest,
    ) -> Result<CoordinationReply, CoordinationError> {
        if self.down_since.is_some() {
            return Err(unreachable("the service is down"));
        }
        if leader != self.leader {
            return Err(interrupted("the leader has changed"));
        }
        self.model.handle(now, request)
    }

    /// When the next lease expires.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.model.next_end().filter(|_| self.down_since.is_none())
    }

    /// Expires leases.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.down_since.is_none() {
            self.model.expire(now);
        }
    }

    /// Stops the service: requests fail, and no lease expires.
    pub(crate) fn stop(&mut self, now: Time) {
        self.down_since.get_or_insert(now);
    }

    /// Resumes the service and extends every lease by the length of the outage.
    pub(crate) fn resume(&mut self, now: Time) {
        if let Some(since) = self.down_since.take() {
            self.model.postpone_ends(now.since(since));
        }
    }

    /// Elects another leader: requests in flight are lost, watches must restart, and every lease has its full time to
    /// live again. Leases without a key, which bind nothing, are dropped.
    pub(crate) fn change_leader(&mut self, now: Time) {
        if self.down_since.is_some() {
            return;
        }
        self.leader += 1;
        let entries = self.entries(now);
        let bound = entries.iter().filter_map(|entry| entry.lease);
        let leases: BTreeMap<_, StoredLease> = bound
            .filter_map(|lease| Some((lease, self.model.lease(lease)?)))
            .collect();
        let (revision, last) = (self.model.revision(), self.model.last_lease());
        let leases = leases.into_values().collect();
        self.model = CoordinationModel::restore(now, revision, last, entries, leases);
    }

    fn entries(&mut self, now: Time) -> Vec<Entry> {
        let range = CoordinationRequest::Range {
            prefix: String::new(),
            after: None,
            limit: RANGE_LIMIT_MAX,
        };
        match self.model.handle(now, range) {
            Ok(CoordinationReply::Entries {
                entries, more: false, ..
            }) => entries,
            other => unreachable!("a small range is complete: {other:?}"),
        }
    }

    pub(crate) fn watch(&mut self, pid: Pid, id: WatchId, next: Revision) {
        let due = false;
        self.watches.insert(pid, Watch { id, next, due });
    }

    pub(crate) fn forget(&mut self, pid: Pid) {
        self.watches.remove(&pid);
    }

    /// Processes with pending watch events; each is returned once until [`Service::batch`] is taken.
    pub(crate) fn watches_due(&mut self) -> Vec<Pid> {
        let revision = self.model.revision();
        let behind = |watch: &Watch| watch.next <= revision && !watch.due;
        let due = self.watches.iter_mut().filter(|(_, watch)| behind(watch));
        due.map(|(pid, watch)| {
            watch.due = true;
            *pid
        })
        .collect()
    }

    /// Pending changes of a watch; none while the service is down.
    pub(crate) fn batch(&mut self, pid: Pid) -> Option<(WatchId, Result<WatchBatch, CoordinationError>)> {
        let watch = self.watches.get_mut(&pid)?;
        watch.due = false;
        if self.down_since.is_some() || watch.next > self.model.revision() {
            return None;
        }
        let batch = self.model.changes(CLUSTER_PREFIX, watch.next);
        let id = watch.id;
        match &batch {
            Ok(batch) => watch.next = batch.revision.next(),
            Err(_) => drop(self.watches.remove(&pid)),
        }
        Some((id, batch))
    }
}

/// The request was not received.
pub(crate) fn unreachable(reason: &str) -> CoordinationError {
    StoreFailure::Unreachable { reason: reason.into() }.into()
}

/// The request may have been applied.
pub(crate) fn interrupted(reason: &str) -> CoordinationError {
    StoreFailure::Interrupted { reason: reason.into() }.into()
}

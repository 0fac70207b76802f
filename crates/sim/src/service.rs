//! The model of the coordination service: the meaning of requests is the protocol's own
//! ([`CoordinationModel`]); here is what goes wrong around it.

use std::collections::BTreeMap;

use elastin_protocol::membership::{CLUSTER_PREFIX, WatchId};
use elastin_protocol::store::{
    CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Entry, RANGE_LIMIT_MAX, Revision,
    StoreFailure, StoredLease, WatchBatch,
};
use elastin_types::Time;

use crate::world::Pid;

/// One process's watch.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    next: Revision,
    /// Whether a look at what is new is on its way.
    due: bool,
}

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Service {
    model: CoordinationModel,
    /// Since when it stands still, if it does.
    away_since: Option<Time>,
    /// Counts its leaders: what was asked of an earlier one is not answered.
    leader: u64,
    watches: BTreeMap<Pid, Watch>,
}

impl Service {
    pub(crate) fn leader(&self) -> u64 {
        self.leader
    }

    /// A request has come that was meant for this leader.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        leader: u64,
        request: CoordinationRequest,
    ) -> Result<CoordinationReply, CoordinationError> {
        if self.away_since.is_some() {
            return Err(unreachable("it is away"));
        }
        if leader != self.leader {
            return Err(interrupted("its leader has changed"));
        }
        self.model.handle(now, request)
    }

    /// When the next lease ends.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.model.next_end().filter(|_| self.away_since.is_none())
    }

    /// Ends the leases whose time is over.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.away_since.is_none() {
            self.model.expire(now);
        }
    }

    /// It stands still: nothing is answered, and no lease ends.
    pub(crate) fn stops(&mut self, now: Time) {
        self.away_since.get_or_insert(now);
    }

    /// It goes on, and gives every lease the time that it was away.
    pub(crate) fn comes_back(&mut self, now: Time) {
        if let Some(since) = self.away_since.take() {
            self.model.postpone_ends(now.since(since));
        }
    }

    /// Another server of the service takes over: requests under way are lost, watches must begin anew, and every lease has
    /// its whole time again. Leases without a key, which nobody misses, are forgotten.
    pub(crate) fn changes_leader(&mut self, now: Time) {
        if self.away_since.is_some() {
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
            other => unreachable!("a small range is read whole: {other:?}"),
        }
    }

    pub(crate) fn watch(&mut self, pid: Pid, id: WatchId, next: Revision) {
        let due = false;
        self.watches.insert(pid, Watch { id, next, due });
    }

    pub(crate) fn forget(&mut self, pid: Pid) {
        self.watches.remove(&pid);
    }

    /// The processes for whose watches there is something new; each is named once until [`Service::batch`] was taken.
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

    /// What is new for a watch; nothing while the service is away.
    pub(crate) fn batch(&mut self, pid: Pid) -> Option<(WatchId, Result<WatchBatch, CoordinationError>)> {
        let watch = self.watches.get_mut(&pid)?;
        watch.due = false;
        if self.away_since.is_some() || watch.next > self.model.revision() {
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

/// The request never got there.
pub(crate) fn unreachable(reason: &str) -> CoordinationError {
    StoreFailure::Unreachable { reason: reason.into() }.into()
}

/// The request may have been carried out.
pub(crate) fn interrupted(reason: &str) -> CoordinationError {
    StoreFailure::Interrupted { reason: reason.into() }.into()
}

//! Handlers for the coordination service's answers and watch batches.

use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::{Membership, RETRY_AFTER, RequestKind};
use crate::membership::{CLUSTER_PREFIX, MemberRecord, MembershipCommand, MembershipEnd, WatchId};
use crate::store::{
    Change, CoordinationError, CoordinationReply, CoordinationRequest, Entry, RANGE_LIMIT_MAX, Revision, WatchBatch,
};
use crate::{KeepAliveId, Lease};

impl Membership {
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        kind: RequestKind,
        result: Result<CoordinationReply, CoordinationError>,
        out: &mut Vec<MembershipCommand>,
    ) {
        match (kind, result) {
            (RequestKind::Grant { at }, Ok(CoordinationReply::Granted { lease, ttl })) => {
                #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a bug changes it"))]
                let mut life = Lease::new(at, ttl);
                #[cfg(feature = "planted-bugs")]
                {
                    life.planted = self.planted;
                }
                self.record.lease_ttl = ttl;
                self.lease = Some((lease, life));
            }
            (RequestKind::Enter, Ok(CoordinationReply::Committed { revision })) => {
                self.on_joined(NodeId(revision.0), out)
            }
            (RequestKind::Enter, Err(CoordinationError::ConditionFailed { current, .. })) => {
                self.on_name_taken(now, current, out)
            }
            (RequestKind::Enter, Err(CoordinationError::LeaseUnknown)) => self.lease = None,
            (RequestKind::KeepAlive(number), Ok(CoordinationReply::KeptAlive { ttl })) => {
                self.lease_answered(now, number, Some(ttl), out);
            }
            (RequestKind::KeepAlive(number), Err(CoordinationError::LeaseUnknown)) => {
                self.lease_answered(now, number, None, out);
            }
            (RequestKind::KeepAlive(_), _) => {}
            (
                RequestKind::Read,
                Ok(CoordinationReply::Entries {
                    entries,
                    revision,
                    more,
                }),
            ) => {
                self.on_entries(entries, revision, more, out);
            }
            (RequestKind::Publish | RequestKind::PendingWrite(_), Ok(CoordinationReply::Committed { revision })) => {
                self.committed = self.committed.max(revision);
                if let RequestKind::PendingWrite(node) = kind {
                    self.pending_writes.answered(node);
                }
            }
            (RequestKind::PendingWrite(node), result) => {
                self.pending_writes.answered(node);
                if result.is_err() {
                    self.retry_at = Some(now + RETRY_AFTER);
                }
            }
            (RequestKind::MarkStopped, _) => {
                let (lease, _) = self.lease.as_ref().expect("only a member with a lease leaves");
                self.submit(RequestKind::Revoke, CoordinationRequest::Revoke { lease: *lease }, out);
            }
            // A lease that was not revoked expires.
            (RequestKind::Revoke, _) => self.end(MembershipEnd::Left, out),
            (RequestKind::Grant { .. } | RequestKind::Enter, Err(error)) if now >= self.join_until => {
                self.end(MembershipEnd::Coordination(error), out);
            }
            (_, Err(_)) => self.retry_at = Some(now + RETRY_AFTER),
            (kind, Ok(other)) => unreachable!("{kind:?} is not answered by {other:?}"),
        }
    }

    fn lease_answered(
        &mut self,
        now: Time,
        number: KeepAliveId,
        alive: Option<Duration>,
        out: &mut Vec<MembershipCommand>,
    ) {
        let mut commands = Vec::new();
        let Some((_, lease)) = &mut self.lease else { return };
        let before = lease.good_until();
        lease.answered(now, number, alive, &mut commands);
        let until = lease.good_until();
        if until > before && self.joined.is_some() {
            out.push(MembershipCommand::MayActUntil(until));
        }
        self.execute(commands, out);
    }

    fn on_joined(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
        self.joined = Some(me);
        let (_, lease) = self.lease.as_ref().expect("the record is bound to the lease");
        out.push(MembershipCommand::Joined { node: me });
        out.push(MembershipCommand::MayActUntil(lease.good_until()));
    }

    /// A record of this name exists. It is this node's own if an earlier request was applied and its answer lost.
    fn on_name_taken(&mut self, now: Time, current: Option<Entry>, out: &mut Vec<MembershipCommand>) {
        let mine = self.lease.as_ref().map(|(lease, _)| *lease);
        match current {
            Some(entry) if entry.lease == mine => self.on_joined(NodeId(entry.created.0), out),
            Some(_) if now >= self.join_until => self.end(MembershipEnd::NameTaken(self.record.name.clone()), out),
            _ => self.retry_at = Some(now + RETRY_AFTER),
        }
    }

    fn on_entries(&mut self, entries: Vec<Entry>, revision: Revision, more: bool, out: &mut Vec<MembershipCommand>) {
        if self.revision == Revision(0) {
            self.revision = revision;
        }
        self.entries
            .extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
        if more {
            return self.read(out);
        }
        // The watch repeats changes that a later page already contained, which is harmless.
        self.watching = true;
        self.changed = true;
        self.last_watch += 1;
        out.push(MembershipCommand::Watch {
            watch: WatchId(self.last_watch),
            from: self.revision.next(),
        });
    }

    pub(super) fn read(&mut self, out: &mut Vec<MembershipCommand>) {
        let range = CoordinationRequest::Range {
            prefix: CLUSTER_PREFIX.into(),
            after: self.entries.keys().next_back().cloned(),
            limit: RANGE_LIMIT_MAX,
        };
        self.submit(RequestKind::Read, range, out);
    }

    pub(super) fn on_watched(&mut self, now: Time, batch: Result<WatchBatch, CoordinationError>) {
        let Ok(WatchBatch { changes, revision }) = batch else {
            // The watch missed changes: read everything again.
            self.watching = false;
            self.retry_at = Some(now + RETRY_AFTER);
            return;
        };
        for change in changes {
            let known = self.entries.get(change.key()).map(|entry| entry.modified);
            match change {
                _ if known >= Some(change.revision()) => {}
                Change::Put(entry) => {
                    // Checked here, because the same batch may delete the record.
                    let stopped = MemberRecord::decode(&entry).filter(|(_, record)| record.stopped);
                    self.stopped.extend(stopped.map(|(node, _)| node));
                    self.entries.insert(entry.key.clone(), entry);
                }
                Change::Deleted { key, .. } => drop(self.entries.remove(&key)),
            }
        }
        self.changed = true;
        self.revision = self.revision.max(revision);
        // An earlier failure may have been caused by stale entries.
        self.retry_at = None;
    }
}

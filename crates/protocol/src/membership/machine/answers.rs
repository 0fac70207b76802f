//! What the coordination service says: answers to requests, and news of what is watched.

use std::time::Duration;

use elastin_types::{NodeId, Time};

use super::{Asked, Membership, RETRY_AFTER};
use crate::membership::{CLUSTER_PREFIX, MemberRecord, MembershipCommand, MembershipEnd, WatchId};
use crate::store::{
    Change, CoordinationError, CoordinationReply, CoordinationRequest, Entry, RANGE_LIMIT_MAX, Revision, WatchBatch,
};
use crate::{KeepAliveId, Lease};

impl Membership {
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        asked: Asked,
        result: Result<CoordinationReply, CoordinationError>,
        out: &mut Vec<MembershipCommand>,
    ) {
        match (asked, result) {
            (Asked::Grant { at }, Ok(CoordinationReply::Granted { lease, ttl })) => {
                #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a bug changes it"))]
                let mut life = Lease::new(at, ttl);
                #[cfg(feature = "planted-bugs")]
                {
                    life.planted = self.planted;
                }
                self.record.lease_ttl = ttl;
                self.lease = Some((lease, life));
            }
            (Asked::Enter, Ok(CoordinationReply::Committed { revision })) => self.entered(NodeId(revision.0), out),
            (Asked::Enter, Err(CoordinationError::ConditionFailed { current, .. })) => self.is_taken(now, current, out),
            (Asked::Enter, Err(CoordinationError::LeaseUnknown)) => self.lease = None,
            (Asked::KeepAlive(number), Ok(CoordinationReply::KeptAlive { ttl })) => {
                self.lease_answered(now, number, Some(ttl), out);
            }
            (Asked::KeepAlive(number), Err(CoordinationError::LeaseUnknown)) => {
                self.lease_answered(now, number, None, out);
            }
            (Asked::KeepAlive(_), _) => {}
            (
                Asked::Read,
                Ok(CoordinationReply::Entries {
                    entries,
                    revision,
                    more,
                }),
            ) => {
                self.on_entries(entries, revision, more, out);
            }
            (Asked::Publish | Asked::PendingWrite(_), Ok(CoordinationReply::Committed { revision })) => {
                self.committed = self.committed.max(revision);
                if let Asked::PendingWrite(node) = asked {
                    self.pending_writes.answered(node);
                }
            }
            (Asked::PendingWrite(node), result) => {
                self.pending_writes.answered(node);
                if result.is_err() {
                    self.retry_at = Some(now + RETRY_AFTER);
                }
            }
            (Asked::Farewell, _) => {
                let (lease, _) = self.lease.as_ref().expect("it was said under the lease");
                self.submit(Asked::Revoke, CoordinationRequest::Revoke { lease: *lease }, out);
            }
            // If it was not given back it runs out.
            (Asked::Revoke, _) => self.end(MembershipEnd::Left, out),
            (Asked::Grant { .. } | Asked::Enter, Err(error)) if now >= self.join_until => {
                self.end(MembershipEnd::Coordination(error), out);
            }
            (_, Err(_)) => self.retry_at = Some(now + RETRY_AFTER),
            (asked, Ok(other)) => unreachable!("{asked:?} is not answered by {other:?}"),
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
        self.carry_out(commands, out);
    }

    fn entered(&mut self, me: NodeId, out: &mut Vec<MembershipCommand>) {
        self.joined = Some(me);
        let (_, lease) = self.lease.as_ref().expect("it entered under the lease");
        out.push(MembershipCommand::Joined { node: me });
        out.push(MembershipCommand::MayActUntil(lease.good_until()));
    }

    /// There is a record of this name: this node's own, if an earlier request was carried out and its answer lost.
    fn is_taken(&mut self, now: Time, current: Option<Entry>, out: &mut Vec<MembershipCommand>) {
        let mine = self.lease.as_ref().map(|(lease, _)| *lease);
        match current {
            Some(entry) if entry.lease == mine => self.entered(NodeId(entry.created.0), out),
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
        // What came with a later page is watched again, which does no harm.
        self.follows = true;
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
        self.submit(Asked::Read, range, out);
    }

    pub(super) fn on_watched(&mut self, now: Time, batch: Result<WatchBatch, CoordinationError>) {
        let Ok(WatchBatch { changes, revision }) = batch else {
            // Changes were missed: everything is read again.
            self.follows = false;
            self.retry_at = Some(now + RETRY_AFTER);
            return;
        };
        for change in changes {
            let known = self.entries.get(change.key()).map(|entry| entry.modified);
            match change {
                _ if known >= Some(change.revision()) => {}
                Change::Put(entry) => {
                    // Looked at here, because the record may go with the same batch.
                    let stopped = MemberRecord::decode(&entry).filter(|(_, record)| record.stopped);
                    self.stopped.extend(stopped.map(|(node, _)| node));
                    self.entries.insert(entry.key.clone(), entry);
                }
                Change::Deleted { key, .. } => drop(self.entries.remove(&key)),
            }
        }
        self.changed = true;
        self.revision = self.revision.max(revision);
        // Whatever failed may have failed because of what was not known.
        self.retry_at = None;
    }
}

//! Translation between coordination and etcd: keys get the cluster's prefix, conditions become comparisons.

use bytes::Bytes;
use elastin_protocol::store::{
    Change, Commit, Condition, CoordinationError, CoordinationReply, Entry, KeyState, LeaseId, RANGE_BYTES_MAX,
    RANGE_LIMIT_MAX, Revision, StoreFailure, Write,
};

use super::messages::{
    Compare, CompareResult, CompareTarget, CompareWith, DELETED, DeleteRangeRequest, Event, Header, KeyValue, Op,
    PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};

/// The key prefix of a cluster, so that several clusters and other applications can share one etcd.
#[derive(Clone, Debug)]
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn of(cluster: &str) -> Self {
        Self(format!("elastin/{cluster}/"))
    }

    pub(super) fn key(&self, key: &str) -> Vec<u8> {
        [self.0.as_bytes(), key.as_bytes()].concat()
    }

    /// The first key after all keys with a prefix.
    pub(super) fn end_of(&self, prefix: &str) -> Vec<u8> {
        let mut end = self.key(prefix);
        // The prefix is UTF-8, which has no byte 0xff: the last byte can always be incremented.
        let last = end.last_mut().expect("a cluster's keys have a prefix");
        *last += 1;
        end
    }

    fn strip(&self, key: &[u8]) -> Result<String, StoreFailure> {
        let text = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(&self.0));
        text.map(str::to_owned).ok_or_else(|| StoreFailure::Corrupt {
            reason: format!("the key {key:?} is outside this cluster's prefix"),
        })
    }

    pub(super) fn entry(&self, kv: KeyValue) -> Result<Entry, StoreFailure> {
        Ok(Entry {
            key: self.strip(&kv.key)?,
            value: kv.value,
            created: revision(kv.create_revision),
            modified: revision(kv.mod_revision),
            lease: (kv.lease != 0).then_some(LeaseId(kv.lease as u64)),
        })
    }

    pub(super) fn change(&self, event: Event) -> Result<Change, StoreFailure> {
        let kv = event.kv.ok_or_else(|| StoreFailure::Corrupt {
            reason: "a change event has no key".to_owned(),
        })?;
        if event.kind == DELETED {
            let (key, revision) = (self.strip(&kv.key)?, revision(kv.mod_revision));
            return Ok(Change::Deleted { key, revision });
        }
        self.entry(kv).map(Change::Put)
    }

    /// Reads the keys of a prefix after a certain one. etcd treats a limit of 0 as none, so at least 1 is requested.
    pub(super) fn range(&self, prefix: &str, after: Option<&str>, limit: u32) -> RangeRequest {
        let key = match after {
            Some(after) if after >= prefix => [&self.key(after)[..], &[0]].concat(),
            _ => self.key(prefix),
        };
        RangeRequest {
            key,
            range_end: self.end_of(prefix),
            limit: i64::from(limit.clamp(1, RANGE_LIMIT_MAX)),
        }
    }

    pub(super) fn get(&self, key: &str) -> RangeRequest {
        RangeRequest {
            key: self.key(key),
            ..RangeRequest::default()
        }
    }

    pub(super) fn got(&self, response: RangeResponse) -> Result<CoordinationReply, StoreFailure> {
        let revision = revision_of(&response.header);
        let entry = response.kvs.into_iter().next().map(|kv| self.entry(kv)).transpose()?;
        Ok(CoordinationReply::Got { entry, revision })
    }

    /// Translates a range response, cut to the requested number of entries.
    pub(super) fn entries(&self, response: RangeResponse, limit: u32) -> Result<CoordinationReply, StoreFailure> {
        let revision = revision_of(&response.header);
        let (mut entries, mut more, mut bytes) = (Vec::new(), response.more, 0);
        for kv in response.kvs {
            if entries.len() >= limit as usize || bytes >= RANGE_BYTES_MAX {
                more = true;
                break;
            }
            let entry = self.entry(kv)?;
            bytes += entry.payload_bytes();
            entries.push(entry);
        }
        Ok(CoordinationReply::Entries {
            entries,
            revision,
            more,
        })
    }

    /// Translates a commit to a transaction. If a comparison fails it reads all keys, to report the failed condition.
    pub(super) fn transaction(&self, commit: &Commit) -> TxnRequest {
        let operation = |op| RequestOp { op: Some(op) };
        TxnRequest {
            compare: commit
                .conditions
                .iter()
                .map(|condition| self.compare(condition))
                .collect(),
            success: commit.writes.iter().map(|write| operation(self.write(write))).collect(),
            failure: commit
                .conditions
                .iter()
                .map(|condition| operation(Op::Range(self.get(&condition.key))))
                .collect(),
        }
    }

    fn compare(&self, condition: &Condition) -> Compare {
        let (result, target, with) = match condition.state {
            KeyState::Absent => (
                CompareResult::Equal,
                CompareTarget::Create,
                CompareWith::CreateRevision(0),
            ),
            KeyState::Present => (
                CompareResult::Greater,
                CompareTarget::Create,
                CompareWith::CreateRevision(0),
            ),
            KeyState::ModifiedAt(Revision(revision)) => {
                let with = CompareWith::ModRevision(revision as i64);
                (CompareResult::Equal, CompareTarget::Mod, with)
            }
        };
        Compare {
            result: result.into(),
            target: target.into(),
            key: self.key(&condition.key),
            with: Some(with),
        }
    }

    fn write(&self, write: &Write) -> Op {
        match write {
            Write::Put { key, value, lease } => Op::Put(PutRequest {
                key: self.key(key),
                value: Bytes::clone(value),
                lease: lease.map_or(0, |lease| lease.0 as i64),
            }),
            Write::Delete { key } => Op::Delete(DeleteRangeRequest { key: self.key(key) }),
        }
    }

    /// Translates the response to a transaction.
    pub(super) fn committed(
        &self,
        commit: &Commit,
        response: TxnResponse,
    ) -> Result<CoordinationReply, CoordinationError> {
        if response.succeeded {
            let revision = revision_of(&response.header);
            return Ok(CoordinationReply::Committed { revision });
        }
        for (condition, response) in commit.conditions.iter().zip(response.responses) {
            let found = response.range.and_then(|range| range.kvs.into_iter().next());
            let current = found.map(|kv| self.entry(kv)).transpose()?;
            if !holds(condition.state, current.as_ref()) {
                let key = condition.key.clone();
                return Err(CoordinationError::ConditionFailed { key, current });
            }
        }
        let reason = "a transaction failed although all its conditions hold".to_owned();
        Err(StoreFailure::Corrupt { reason }.into())
    }
}

fn holds(state: KeyState, current: Option<&Entry>) -> bool {
    match state {
        KeyState::Absent => current.is_none(),
        KeyState::Present => current.is_some(),
        KeyState::ModifiedAt(revision) => current.is_some_and(|entry| entry.modified == revision),
    }
}

fn revision(number: i64) -> Revision {
    Revision(number as u64)
}

fn revision_of(header: &Option<Header>) -> Revision {
    revision(header.as_ref().map_or(0, |header| header.revision))
}

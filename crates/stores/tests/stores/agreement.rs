//! Random requests: the embedded stores, reopened now and then, answer exactly like the models.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::store::{
    Change, Commit, Coordination, CoordinationModel, CoordinationReply, CoordinationRequest, Expected, KeyState,
    LeaseId, LockToken, MemoryTables, Revision, Space, StateError, StateModel, StateReply, StateRequest, StateStore,
    ValueKey, Version,
};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState};
use elastin_types::{ActivationEpoch, ActorId, ActorType, NodeId, SlotEpoch, TenantId, Time};

use crate::blocking::{LIMIT, ask_coordination, ask_state};

/// Longer than any test, so that nothing expires.
const LONG: Duration = Duration::from_secs(6000);
/// The number of batches after which the files are closed and opened again.
const BATCHES_PER_LIFE: usize = 25;
const LIVES: usize = 8;

/// A deterministic pseudo-random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self) -> Bytes {
        let length = self.below(40) as usize;
        vec![self.below(256) as u8; length].into()
    }

    fn actor(&mut self) -> ActorId {
        let kind = ActorType::of("Folder");
        match self.below(3) {
            0 => ActorId::new(kind, self.below(3)),
            1 => ActorId::new(kind, format!("{}", self.below(3))),
            _ => ActorId::new(kind, [self.below(3) as u8; 16]),
        }
    }

    fn epoch(&mut self) -> ActivationEpoch {
        let slot = SlotEpoch(self.below(3) as u32);
        let counter = self.below(6) as u32;
        ActivationEpoch { slot, counter }
    }

    fn space(&mut self) -> Space {
        match self.below(3) {
            0 => Space::System,
            tenant => Space::Tenant(TenantId(tenant as u32 * 256)),
        }
    }

    fn name(&mut self) -> Bytes {
        (0..self.below(3))
            .map(|_| [0, 97, 255][self.below(3) as usize])
            .collect()
    }

    fn value_key(&mut self) -> ValueKey {
        let (space, name) = (self.space(), self.name());
        ValueKey { space, name }
    }

    /// A version that is likely to be current.
    fn version(&mut self, last: Version) -> Version {
        Version(last.0.saturating_sub(self.below(8)))
    }

    fn lock_token(&mut self, last: Version) -> LockToken {
        let (key, token) = (self.value_key(), self.version(last));
        LockToken { key, token }
    }

    fn state_request(&mut self, last: Version) -> StateRequest {
        match self.below(12) {
            0 | 1 => StateRequest::Claim {
                actor: self.actor(),
                epoch: self.epoch(),
                claimer: NodeId(self.below(2)),
            },
            2 => StateRequest::Load { actor: self.actor() },
            3 | 4 => StateRequest::Save {
                actor: self.actor(),
                epoch: self.epoch(),
                state: self.bytes(),
            },
            5 => StateRequest::Delete {
                actor: self.actor(),
                epoch: self.epoch(),
            },
            6 => StateRequest::Get { key: self.value_key() },
            7 | 8 => StateRequest::Swap {
                key: self.value_key(),
                expected: match self.below(4) {
                    0 => Expected::Absent,
                    1 => Expected::Version(self.version(last)),
                    _ => Expected::Anything,
                },
                value: (self.below(4) > 0).then(|| self.bytes()),
                under: (self.below(4) == 0).then(|| self.lock_token(last)),
            },
            9 => StateRequest::Scan {
                space: self.space(),
                from: self.name(),
                until: (self.below(2) == 0).then(|| self.name()),
                limit: self.below(10) as u32,
            },
            10 => StateRequest::Lock {
                key: self.value_key(),
                ttl: LONG,
            },
            _ if self.below(2) == 0 => StateRequest::Renew {
                lock: self.lock_token(last),
                ttl: LONG,
            },
            _ => StateRequest::Unlock {
                lock: self.lock_token(last),
            },
        }
    }

    fn key(&mut self) -> String {
        ["a", "ab", "abc", "b", "ba"][self.below(5) as usize].to_owned()
    }

    fn commit(&mut self, revision: Revision, leases: &[LeaseId]) -> Commit {
        let mut commit = Commit::default();
        for _ in 0..self.below(3) {
            let state = match self.below(4) {
                0 => KeyState::Absent,
                1 => KeyState::ModifiedAt(Revision(revision.0.saturating_sub(self.below(5)))),
                _ => KeyState::Present,
            };
            commit = commit.when(self.key(), state);
        }
        for _ in 0..self.below(4) {
            let lease = leases.get(self.below(6) as usize).copied();
            commit = match self.below(3) {
                0 => commit.and_delete(self.key()),
                _ => commit.and_put(self.key(), self.bytes(), lease),
            };
        }
        commit
    }

    fn coordination_request(&mut self, revision: Revision, leases: &[LeaseId]) -> CoordinationRequest {
        let lease = leases.get(self.below(4) as usize).copied().unwrap_or(LeaseId(9999));
        match self.below(10) {
            0 => CoordinationRequest::Grant { ttl: LONG },
            1 => CoordinationRequest::KeepAlive { lease },
            2 => CoordinationRequest::Revoke { lease },
            3 => CoordinationRequest::Get { key: self.key() },
            4 => CoordinationRequest::Range {
                prefix: ["", "a", "ab", "c"][self.below(4) as usize].to_owned(),
                after: (self.below(2) == 0).then(|| self.key()),
                limit: self.below(6) as u32,
            },
            _ => self.commit(revision, leases).into(),
        }
    }
}

/// Removes the remaining time of a held lock, which depends on the clock.
fn without_clock(result: Result<StateReply, StateError>) -> Result<StateReply, StateError> {
    match result {
        Err(StateError::LockHeld { .. }) => Err(StateError::LockHeld {
            remaining: Duration::ZERO,
        }),
        other => other,
    }
}

#[test]
fn embedded_state_agrees_with_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut random = Random(42);
    let mut model = StateModel::new(MemoryTables::default());
    let mut last = Version(0);
    let mut succeeded = 0;
    for _ in 0..LIVES {
        let store = EmbeddedState::open(&path).unwrap();
        for _ in 0..BATCHES_PER_LIFE {
            let (sender, results) = mpsc::channel();
            let mut expected = Vec::new();
            for _ in 0..=random.below(20) {
                let request = random.state_request(last);
                let reply = without_clock(model.handle(Time::ZERO, request.clone()));
                if let Ok(StateReply::Swapped { version } | StateReply::Locked { token: version }) = &reply {
                    last = last.max(*version);
                }
                succeeded += usize::from(reply.is_ok());
                expected.push((request.clone(), reply));
                let sender = sender.clone();
                store.submit(request, Box::new(move |result| sender.send(result).unwrap()));
            }
            for (request, expected) in expected {
                let actual = without_clock(results.recv_timeout(LIMIT).unwrap());
                assert_eq!(actual, expected, "the reply to {request:?}");
            }
        }
    }
    assert!(
        succeeded > 500,
        "only {succeeded} requests succeeded: too few to compare"
    );
    let store = EmbeddedState::open(&path).unwrap();
    let scan = StateRequest::Scan {
        space: Space::System,
        from: Bytes::new(),
        until: None,
        limit: 1000,
    };
    assert_eq!(ask_state(&store, scan.clone()), model.handle(Time::ZERO, scan));
}

#[test]
fn embedded_coordination_agrees_with_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordination");
    let mut random = Random(43);
    let mut model = CoordinationModel::default();
    let mut leases = Vec::new();
    // The entries as seen by a watcher that applies every change.
    let mut seen: BTreeMap<String, Bytes> = BTreeMap::new();
    for _ in 0..LIVES {
        let store = EmbeddedCoordination::open(&path).unwrap();
        let (sender, batches) = mpsc::channel();
        let sink = Box::new(move |batch| {
            // The receiver may be gone before the store.
            let _ = sender.send(batch);
        });
        let _guard = store.watch(String::new(), model.revision().next(), sink);
        for _ in 0..BATCHES_PER_LIFE * 5 {
            let request = random.coordination_request(model.revision(), &leases);
            let expected = model.handle(Time::ZERO, request.clone());
            if let Ok(CoordinationReply::Granted { lease, .. }) = &expected {
                leases.insert(0, *lease);
            }
            assert_eq!(
                ask_coordination(&store, request.clone()),
                expected,
                "the reply to {request:?}"
            );
        }
        let mut upto = Revision(0);
        while upto < model.revision() {
            let batch = batches.recv_timeout(LIMIT).unwrap().unwrap();
            upto = batch.revision;
            for change in batch.changes {
                match change {
                    Change::Put(entry) => seen.insert(entry.key, entry.value),
                    Change::Deleted { key, .. } => seen.remove(&key),
                };
            }
        }
        check_seen(&seen, &mut model);
    }
}

fn check_seen(seen: &BTreeMap<String, Bytes>, model: &mut CoordinationModel) {
    let all = CoordinationRequest::Range {
        prefix: String::new(),
        after: None,
        limit: 1000,
    };
    let Ok(CoordinationReply::Entries { entries, .. }) = model.handle(Time::ZERO, all) else {
        panic!("the model can be read");
    };
    let entries: BTreeMap<String, Bytes> = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(*seen, entries);
}

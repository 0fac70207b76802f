//! The scripts for coordination.

use std::time::Duration;

use super::{CoordinationScript, CoordinationStep};
use crate::store::{
    COORDINATION_KEY_BYTES_MAX, Change, Commit, CoordinationError, CoordinationReply, CoordinationRequest, Entry,
    KeyState, LeaseId, Revision,
};

/// Time to live of a lease that expires during a script: long enough to bind a key to it on a busy machine.
const SHORT: Duration = Duration::from_secs(1);
/// Time to live of a lease that must not expire during a script.
const LONG: Duration = Duration::from_secs(600);

/// All scripts for coordination.
pub fn coordination_scripts() -> Vec<CoordinationScript> {
    vec![
        script("keys have revisions", keys_have_revisions()),
        script("a commit happens only if its conditions hold", conditions()),
        script("a commit is one revision", a_commit_is_one_revision()),
        script("a range is ordered and limited", a_range_is_ordered()),
        script("revoking a lease deletes its keys", revoking_a_lease_deletes_its_keys()),
        script("a lease expires", a_lease_expires()),
        script("a key changes its lease", a_key_changes_its_lease()),
        script(
            "a watch delivers every change after its start",
            a_watch_delivers_every_change(),
        ),
        script("invalid requests are rejected", invalid()),
    ]
}

fn script(name: &'static str, steps: Vec<CoordinationStep>) -> CoordinationScript {
    CoordinationScript { name, steps }
}

type Expected = Result<CoordinationReply, CoordinationError>;

fn ask(request: impl Into<CoordinationRequest>, expected: Expected) -> CoordinationStep {
    let request = request.into();
    CoordinationStep::Ask { request, expected }
}

fn watch(prefix: &str, after: u64) -> CoordinationStep {
    let (prefix, after) = (prefix.to_owned(), Revision(after));
    CoordinationStep::Watch { prefix, after }
}

fn await_changes(watch: usize, changes: Vec<Change>) -> CoordinationStep {
    CoordinationStep::Await { watch, changes }
}

fn committed(revision: u64) -> Expected {
    let revision = Revision(revision);
    Ok(CoordinationReply::Committed { revision })
}

fn get(key: &str) -> CoordinationRequest {
    CoordinationRequest::Get { key: key.to_owned() }
}

fn got(entry: Option<Entry>, revision: u64) -> Expected {
    let revision = Revision(revision);
    Ok(CoordinationReply::Got { entry, revision })
}

fn entry(key: &str, value: &'static str, created: u64, modified: u64, lease: Option<u64>) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.into(),
        created: Revision(created),
        modified: Revision(modified),
        lease: lease.map(LeaseId),
    }
}

fn failed(key: &str, current: Option<Entry>) -> Expected {
    let key = key.to_owned();
    Err(CoordinationError::ConditionFailed { key, current })
}

fn deleted(key: &str, revision: u64) -> Change {
    let (key, revision) = (key.to_owned(), Revision(revision));
    Change::Deleted { key, revision }
}

fn grant(ttl: Duration) -> CoordinationRequest {
    CoordinationRequest::Grant { ttl }
}

fn granted(lease: u64, ttl: Duration) -> Expected {
    let lease = LeaseId(lease);
    Ok(CoordinationReply::Granted { lease, ttl })
}

fn keep_alive(lease: u64) -> CoordinationRequest {
    let lease = LeaseId(lease);
    CoordinationRequest::KeepAlive { lease }
}

fn revoke(lease: u64) -> CoordinationRequest {
    let lease = LeaseId(lease);
    CoordinationRequest::Revoke { lease }
}

fn at(revision: u64) -> KeyState {
    KeyState::ModifiedAt(Revision(revision))
}

fn keys_have_revisions() -> Vec<CoordinationStep> {
    let key = "revisions/a";
    vec![
        ask(get(key), got(None, 1)),
        ask(Commit::put(key, "one"), committed(2)),
        ask(get(key), got(Some(entry(key, "one", 2, 2, None)), 2)),
        ask(Commit::put(key, "two"), committed(3)),
        ask(Commit::put("revisions/b", ""), committed(4)),
        ask(get(key), got(Some(entry(key, "two", 2, 3, None)), 4)),
        ask(Commit::delete(key), committed(5)),
        ask(get(key), got(None, 5)),
        // Deleting nothing changes nothing, so there is no new revision.
        ask(Commit::delete(key), committed(5)),
        ask(Commit::default(), committed(5)),
        ask(Commit::put(key, "three"), committed(6)),
        ask(get(key), got(Some(entry(key, "three", 6, 6, None)), 6)),
    ]
}

fn conditions() -> Vec<CoordinationStep> {
    let (key, other) = ("conditions/a", "conditions/b");
    let first = || Some(entry(key, "one", 1, 1, None));
    vec![
        ask(Commit::put(key, "x").when(key, KeyState::Present), failed(key, None)),
        ask(Commit::put(key, "one").when(key, KeyState::Absent), committed(1)),
        ask(Commit::put(key, "x").when(key, KeyState::Absent), failed(key, first())),
        ask(Commit::delete(key).when(other, KeyState::Present), failed(other, None)),
        ask(get(key), got(first(), 1)),
        ask(
            Commit::put(other, "two")
                .when(key, at(1))
                .when(other, KeyState::Absent)
                .when(key, KeyState::Present),
            committed(2),
        ),
        ask(
            Commit::put(key, "x").when(key, at(1)).when(other, at(1)),
            failed(other, Some(entry(other, "two", 2, 2, None))),
        ),
        ask(Commit::put(key, "three").when(key, at(1)), committed(3)),
        ask(
            Commit::delete(key).when(key, at(1)),
            failed(key, Some(entry(key, "three", 1, 3, None))),
        ),
        ask(Commit::delete(key).when(key, at(3)), committed(4)),
    ]
}

fn a_commit_is_one_revision() -> Vec<CoordinationStep> {
    let (a, b, c) = ("together/a", "together/b", "together/c");
    vec![
        ask(Commit::put(a, "1"), committed(1)),
        watch("together/", 1),
        ask(Commit::put(b, "2").and_delete(a).and_put(c, "3", None), committed(2)),
        ask(get(b), got(Some(entry(b, "2", 2, 2, None)), 2)),
        ask(get(c), got(Some(entry(c, "3", 2, 2, None)), 2)),
        ask(get(a), got(None, 2)),
        await_changes(
            0,
            vec![
                Change::Put(entry(b, "2", 2, 2, None)),
                deleted(a, 2),
                Change::Put(entry(c, "3", 2, 2, None)),
            ],
        ),
    ]
}

fn a_range_is_ordered() -> Vec<CoordinationStep> {
    let range = |after: Option<&str>, limit| CoordinationRequest::Range {
        prefix: "range/".to_owned(),
        after: after.map(str::to_owned),
        limit,
    };
    let entries = |entries, revision, more| {
        let revision = Revision(revision);
        Ok(CoordinationReply::Entries {
            entries,
            revision,
            more,
        })
    };
    let a = || entry("range/a", "a", 3, 3, None);
    let b = || entry("range/b", "b", 2, 2, None);
    let c = || entry("range/c", "c", 1, 1, None);
    vec![
        ask(Commit::put("range/c", "c"), committed(1)),
        ask(Commit::put("range/b", "b"), committed(2)),
        ask(Commit::put("range/a", "a"), committed(3)),
        ask(
            Commit::put("range", "before").and_put("range0", "after", None),
            committed(4),
        ),
        ask(range(None, 10), entries(vec![a(), b(), c()], 4, false)),
        ask(range(None, 2), entries(vec![a(), b()], 4, true)),
        ask(range(Some("range/b"), 2), entries(vec![c()], 4, false)),
        ask(range(Some("range/aa"), 1), entries(vec![b()], 4, true)),
        ask(range(Some("range/c"), 2), entries(vec![], 4, false)),
        ask(range(Some("a"), 1), entries(vec![a()], 4, true)),
        ask(range(None, 0), entries(vec![], 4, true)),
    ]
}

fn revoking_a_lease_deletes_its_keys() -> Vec<CoordinationStep> {
    let unknown = || Err(CoordinationError::LeaseUnknown);
    let (a, b, c) = ("lease/a", "lease/b", "lease/c");
    vec![
        ask(grant(LONG), granted(1, LONG)),
        ask(keep_alive(1), Ok(CoordinationReply::KeptAlive { ttl: LONG })),
        ask(Commit::put_bound(a, "1", LeaseId(1)), committed(1)),
        ask(get(a), got(Some(entry(a, "1", 1, 1, Some(1))), 1)),
        ask(
            Commit::put_bound(b, "2", LeaseId(1)).and_put(c, "3", None),
            committed(2),
        ),
        watch("lease/", 2),
        ask(revoke(1), Ok(CoordinationReply::Revoked)),
        // All keys of the lease are deleted in one revision.
        await_changes(0, vec![deleted(a, 3), deleted(b, 3)]),
        ask(get(a), got(None, 3)),
        ask(get(c), got(Some(entry(c, "3", 2, 2, None)), 3)),
        ask(keep_alive(1), unknown()),
        ask(revoke(1), unknown()),
        ask(Commit::put_bound(a, "x", LeaseId(1)).and_put(c, "x", None), unknown()),
        ask(get(c), got(Some(entry(c, "3", 2, 2, None)), 3)),
        ask(grant(LONG), granted(2, LONG)),
        ask(revoke(2), Ok(CoordinationReply::Revoked)),
        // A lease without keys creates no revision.
        ask(get(a), got(None, 3)),
    ]
}

fn a_lease_expires() -> Vec<CoordinationStep> {
    let key = "ends/a";
    vec![
        ask(get(key), got(None, 1)),
        watch("ends/", 1),
        ask(grant(SHORT), granted(1, SHORT)),
        ask(Commit::put_bound(key, "1", LeaseId(1)), committed(2)),
        await_changes(0, vec![Change::Put(entry(key, "1", 2, 2, Some(1))), deleted(key, 3)]),
        ask(get(key), got(None, 3)),
        ask(keep_alive(1), Err(CoordinationError::LeaseUnknown)),
    ]
}

fn a_key_changes_its_lease() -> Vec<CoordinationStep> {
    let (a, b) = ("rebound/a", "rebound/b");
    vec![
        ask(grant(LONG), granted(1, LONG)),
        ask(grant(LONG), granted(2, LONG)),
        ask(
            Commit::put_bound(a, "1", LeaseId(1)).and_put(b, "1", Some(LeaseId(1))),
            committed(1),
        ),
        ask(Commit::put_bound(a, "2", LeaseId(2)), committed(2)),
        ask(Commit::put(b, "2"), committed(3)),
        ask(revoke(1), Ok(CoordinationReply::Revoked)),
        ask(get(a), got(Some(entry(a, "2", 1, 2, Some(2))), 3)),
        ask(get(b), got(Some(entry(b, "2", 1, 3, None)), 3)),
        ask(revoke(2), Ok(CoordinationReply::Revoked)),
        ask(get(a), got(None, 4)),
        ask(get(b), got(Some(entry(b, "2", 1, 3, None)), 4)),
    ]
}

fn a_watch_delivers_every_change() -> Vec<CoordinationStep> {
    let (a, b) = ("watch/a", "watch/b");
    let first = || Change::Put(entry(a, "1", 1, 1, None));
    let second = || Change::Put(entry(a, "2", 1, 3, None));
    let third = || Change::Put(entry(b, "3", 4, 4, None));
    vec![
        ask(get(a), got(None, 0)),
        ask(Commit::put(a, "1"), committed(1)),
        ask(Commit::put("watched", "elsewhere"), committed(2)),
        ask(Commit::put(a, "2"), committed(3)),
        watch("watch/", 0),
        watch("watch/", 1),
        watch(b, 0),
        await_changes(0, vec![first(), second()]),
        await_changes(1, vec![second()]),
        ask(Commit::put(b, "3"), committed(4)),
        ask(Commit::delete(a), committed(5)),
        await_changes(0, vec![third(), deleted(a, 5)]),
        await_changes(1, vec![third(), deleted(a, 5)]),
        await_changes(2, vec![third()]),
    ]
}

fn invalid() -> Vec<CoordinationStep> {
    let twice = "invalid/twice";
    let long = "k".repeat(COORDINATION_KEY_BYTES_MAX + 1);
    let refused = |reason: String| Err(CoordinationError::Invalid(reason));
    vec![
        ask(
            Commit::put(twice, "1").and_delete(twice),
            refused(format!("`{twice}` is written twice")),
        ),
        ask(
            Commit::put(long.clone(), "1"),
            refused(format!("a key of {} bytes", long.len())),
        ),
        ask(Commit::put("", "1"), refused("a key of 0 bytes".to_owned())),
        ask(get(twice), got(None, 1)),
    ]
}

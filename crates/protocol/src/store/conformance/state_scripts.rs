//! The scripts for state stores.

use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, ActorType, KEY_BYTES_MAX, NodeId, SlotEpoch, TenantId};

use super::{StateScript, StateStep};
use crate::store::{
    Expected, LockToken, Space, StateError, StateReply, StateRequest, VALUE_BYTES_MAX, VALUE_NAME_BYTES_MAX, ValueKey,
    Version, Versioned,
};

/// Time to live of a lock that expires during a script.
const SHORT: Duration = Duration::from_millis(200);
/// Time to live of a lock that must not expire during a script.
const LONG: Duration = Duration::from_secs(600);
/// The tenant whose values the scripts use.
const SPACE: Space = Space::Tenant(TenantId(7));

/// All scripts for state stores.
pub fn state_scripts() -> Vec<StateScript> {
    vec![
        script("an actor's state is kept", a_state_is_kept()),
        script(
            "an earlier activation is fenced off",
            an_earlier_activation_is_fenced_off(),
        ),
        script("a claim can be repeated by its node only", a_claim_can_be_repeated()),
        script("a deleted actor keeps its epoch", a_deleted_actor_keeps_its_epoch()),
        script("actors don't share state", actors_are_apart()),
        script("values are swapped by version", values_are_swapped()),
        script("a scan is ordered and limited", a_scan_is_ordered()),
        script("a lock has one holder", a_lock_has_one_holder()),
        script("a lock expires", a_lock_expires()),
        script("oversized requests are rejected", too_large()),
    ]
}

fn script(name: &'static str, steps: Vec<StateStep>) -> StateScript {
    StateScript { name, steps }
}

fn ask(request: StateRequest, expected: Result<StateReply, StateError>) -> StateStep {
    StateStep::Ask { request, expected }
}

fn epoch(slot: u32, counter: u32) -> ActivationEpoch {
    let slot = SlotEpoch(slot);
    ActivationEpoch { slot, counter }
}

fn actor(script: &str) -> ActorId {
    ActorId::new(ActorType::of("Conformance"), script)
}

fn fenced(stored: ActivationEpoch) -> Result<StateReply, StateError> {
    Err(StateError::Fenced { stored })
}

fn claim(actor: &ActorId, epoch: ActivationEpoch, node: u64) -> StateRequest {
    let (actor, claimer) = (actor.clone(), NodeId(node));
    StateRequest::Claim { actor, epoch, claimer }
}

fn save(actor: &ActorId, epoch: ActivationEpoch, state: &'static str) -> StateRequest {
    let (actor, state) = (actor.clone(), Bytes::from(state));
    StateRequest::Save { actor, epoch, state }
}

fn delete(actor: &ActorId, epoch: ActivationEpoch) -> StateRequest {
    let actor = actor.clone();
    StateRequest::Delete { actor, epoch }
}

fn load(actor: &ActorId) -> StateRequest {
    let actor = actor.clone();
    StateRequest::Load { actor }
}

fn claimed(state: Option<&'static str>) -> Result<StateReply, StateError> {
    let state = state.map(Bytes::from);
    Ok(StateReply::Claimed { state })
}

fn loaded(epoch: Option<ActivationEpoch>, state: Option<&'static str>) -> Result<StateReply, StateError> {
    let state = state.map(Bytes::from);
    Ok(StateReply::Loaded { epoch, state })
}

fn a_state_is_kept() -> Vec<StateStep> {
    let actor = actor("kept");
    let first = epoch(1, 1);
    vec![
        ask(load(&actor), loaded(None, None)),
        ask(claim(&actor, first, 1), claimed(None)),
        ask(load(&actor), loaded(Some(first), None)),
        ask(save(&actor, first, "one"), Ok(StateReply::Saved)),
        ask(load(&actor), loaded(Some(first), Some("one"))),
        ask(save(&actor, first, "two"), Ok(StateReply::Saved)),
        ask(save(&actor, first, ""), Ok(StateReply::Saved)),
        ask(load(&actor), loaded(Some(first), Some(""))),
        ask(save(&actor, first, "three"), Ok(StateReply::Saved)),
        ask(claim(&actor, epoch(1, 2), 2), claimed(Some("three"))),
    ]
}

fn an_earlier_activation_is_fenced_off() -> Vec<StateStep> {
    let actor = actor("fenced");
    let (early, late) = (epoch(1, 9), epoch(2, 0));
    vec![
        ask(claim(&actor, early, 1), claimed(None)),
        ask(save(&actor, early, "early"), Ok(StateReply::Saved)),
        ask(claim(&actor, late, 2), claimed(Some("early"))),
        ask(save(&actor, early, "too late"), fenced(late)),
        ask(delete(&actor, early), fenced(late)),
        ask(claim(&actor, early, 1), fenced(late)),
        ask(load(&actor), loaded(Some(late), Some("early"))),
        ask(save(&actor, late, "late"), Ok(StateReply::Saved)),
        // A write raises the epoch as a claim does.
        ask(save(&actor, epoch(2, 1), "later"), Ok(StateReply::Saved)),
        ask(save(&actor, late, "too late"), fenced(epoch(2, 1))),
        ask(load(&actor), loaded(Some(epoch(2, 1)), Some("later"))),
    ]
}

fn a_claim_can_be_repeated() -> Vec<StateStep> {
    let actor = actor("repeated");
    let first = epoch(3, 3);
    vec![
        ask(claim(&actor, first, 1), claimed(None)),
        ask(claim(&actor, first, 1), claimed(None)),
        ask(claim(&actor, first, 2), fenced(first)),
        ask(save(&actor, first, "mine"), Ok(StateReply::Saved)),
        ask(claim(&actor, first, 1), claimed(Some("mine"))),
        ask(claim(&actor, first, 2), fenced(first)),
        // A write raised the epoch without a claim, so there is no claim to repeat.
        ask(save(&actor, first.next(), "unclaimed"), Ok(StateReply::Saved)),
        ask(claim(&actor, first.next(), 1), fenced(first.next())),
    ]
}

fn a_deleted_actor_keeps_its_epoch() -> Vec<StateStep> {
    let actor = actor("deleted");
    let (first, second) = (epoch(1, 1), epoch(1, 2));
    vec![
        ask(save(&actor, first, "state"), Ok(StateReply::Saved)),
        ask(delete(&actor, second), Ok(StateReply::Deleted)),
        ask(load(&actor), loaded(Some(second), None)),
        ask(save(&actor, first, "back"), fenced(second)),
        ask(delete(&actor, second), Ok(StateReply::Deleted)),
        ask(claim(&actor, epoch(1, 3), 1), claimed(None)),
    ]
}

fn actors_are_apart() -> Vec<StateStep> {
    let one = actor("apart");
    let number = ActorId::new(one.kind, 7);
    let text = ActorId::new(one.kind, "7");
    let uuid = ActorId::new(one.kind, [7; 16]);
    let kind = ActorId::new(ActorType::of("Other"), "apart");
    let mut tenant = one.clone();
    tenant.tenant = TenantId(1);
    let actors = [
        (one, "one"),
        (number, "number"),
        (text, "text"),
        (uuid, "uuid"),
        (kind, "kind"),
        (tenant, "tenant"),
    ];
    let saves = actors
        .iter()
        .map(|(actor, state)| ask(save(actor, epoch(1, 1), state), Ok(StateReply::Saved)));
    let loads = actors
        .iter()
        .map(|(actor, state)| ask(load(actor), loaded(Some(epoch(1, 1)), Some(state))));
    saves.chain(loads).collect()
}

fn key(name: &'static str) -> ValueKey {
    let (space, name) = (SPACE, Bytes::from(name));
    ValueKey { space, name }
}

fn swap(key: &ValueKey, expected: Expected, value: Option<&'static str>) -> StateRequest {
    StateRequest::Swap {
        key: key.clone(),
        expected,
        value: value.map(Bytes::from),
        under: None,
    }
}

fn swapped(version: u64) -> Result<StateReply, StateError> {
    let version = Version(version);
    Ok(StateReply::Swapped { version })
}

fn conflict(current: Option<u64>) -> Result<StateReply, StateError> {
    let current = current.map(Version);
    Err(StateError::Conflict { current })
}

fn versioned(version: u64, value: &'static str) -> Versioned {
    let (version, value) = (Version(version), Bytes::from(value));
    Versioned { version, value }
}

fn values_are_swapped() -> Vec<StateStep> {
    let counter = key("swapped/counter");
    let get = StateRequest::Get { key: counter.clone() };
    let system = ValueKey {
        space: Space::System,
        name: counter.name.clone(),
    };
    let at = |version| Expected::Version(Version(version));
    vec![
        ask(get.clone(), Ok(StateReply::Value(None))),
        ask(swap(&counter, Expected::Absent, Some("1")), swapped(1)),
        ask(swap(&counter, Expected::Absent, Some("x")), conflict(Some(1))),
        ask(get.clone(), Ok(StateReply::Value(Some(versioned(1, "1"))))),
        ask(swap(&counter, at(1), Some("2")), swapped(2)),
        ask(swap(&counter, at(1), Some("x")), conflict(Some(2))),
        ask(swap(&counter, Expected::Anything, Some("3")), swapped(3)),
        ask(swap(&counter, at(2), None), conflict(Some(3))),
        ask(swap(&counter, at(3), None), swapped(4)),
        ask(get.clone(), Ok(StateReply::Value(None))),
        ask(swap(&counter, at(3), Some("x")), conflict(None)),
        // A value that was deleted and written again has a new version.
        ask(swap(&counter, Expected::Absent, Some("1")), swapped(5)),
        ask(swap(&counter, at(1), Some("x")), conflict(Some(5))),
        ask(StateRequest::Get { key: system }, Ok(StateReply::Value(None))),
        ask(get, Ok(StateReply::Value(Some(versioned(5, "1"))))),
    ]
}

fn scan(from: &'static str, until: Option<&'static str>, limit: u32) -> StateRequest {
    StateRequest::Scan {
        space: SPACE,
        from: from.into(),
        until: until.map(Bytes::from),
        limit,
    }
}

fn rows(found: &[(&'static str, u64)], more: bool) -> Result<StateReply, StateError> {
    let rows = found
        .iter()
        .map(|(name, version)| (Bytes::from(*name), versioned(*version, name)))
        .collect();
    Ok(StateReply::Rows { rows, more })
}

fn a_scan_is_ordered() -> Vec<StateStep> {
    let put = |name| swap(&key(name), Expected::Anything, Some(name));
    let elsewhere = StateRequest::Swap {
        key: ValueKey {
            space: Space::Tenant(TenantId(8)),
            name: "scan/b".into(),
        },
        expected: Expected::Anything,
        value: Some("elsewhere".into()),
        under: None,
    };
    vec![
        ask(scan("scan/", Some("scan0"), 10), rows(&[], false)),
        ask(put("scan/c"), swapped(1)),
        ask(put("scan/a"), swapped(2)),
        ask(put("scan/b"), swapped(3)),
        ask(put("scan/a\0"), swapped(4)),
        ask(elsewhere, swapped(5)),
        ask(
            scan("scan/", Some("scan0"), 10),
            rows(&[("scan/a", 2), ("scan/a\0", 4), ("scan/b", 3), ("scan/c", 1)], false),
        ),
        ask(
            scan("scan/", Some("scan0"), 2),
            rows(&[("scan/a", 2), ("scan/a\0", 4)], true),
        ),
        ask(
            scan("scan/a\0", Some("scan/c"), 2),
            rows(&[("scan/a\0", 4), ("scan/b", 3)], false),
        ),
        ask(scan("scan/b", Some("scan/b"), 2), rows(&[], false)),
        ask(scan("scan/c", Some("scan/a"), 2), rows(&[], false)),
        ask(scan("scan/", Some("scan0"), 0), rows(&[], true)),
        ask(swap(&key("scan/b"), Expected::Anything, None), swapped(6)),
        ask(scan("scan/b", Some("scan0"), 10), rows(&[("scan/c", 1)], false)),
    ]
}

fn lock(key: &ValueKey, ttl: Duration) -> StateRequest {
    let key = key.clone();
    StateRequest::Lock { key, ttl }
}

fn token(key: &ValueKey, token: u64) -> LockToken {
    let (key, token) = (key.clone(), Version(token));
    LockToken { key, token }
}

fn locked(token: u64) -> Result<StateReply, StateError> {
    let token = Version(token);
    Ok(StateReply::Locked { token })
}

fn held(remaining: Duration) -> Result<StateReply, StateError> {
    Err(StateError::LockHeld { remaining })
}

fn swap_under(key: &ValueKey, value: &'static str, under: LockToken) -> StateRequest {
    StateRequest::Swap {
        key: key.clone(),
        expected: Expected::Anything,
        value: Some(value.into()),
        under: Some(under),
    }
}

fn a_lock_has_one_holder() -> Vec<StateStep> {
    let door = key("holder/door");
    let lost = || Err(StateError::LockLost);
    let unlock = |number| StateRequest::Unlock {
        lock: token(&door, number),
    };
    let renew = |number| StateRequest::Renew {
        lock: token(&door, number),
        ttl: LONG,
    };
    vec![
        ask(lock(&door, LONG), locked(1)),
        ask(lock(&door, LONG), held(LONG)),
        ask(lock(&key("holder/window"), LONG), locked(2)),
        ask(renew(2), lost()),
        ask(renew(1), locked(1)),
        ask(swap_under(&door, "in", token(&door, 1)), swapped(3)),
        ask(unlock(2), lost()),
        ask(unlock(1), Ok(StateReply::Unlocked)),
        ask(unlock(1), lost()),
        ask(lock(&door, LONG), locked(4)),
        ask(swap_under(&door, "out", token(&door, 1)), lost()),
        ask(unlock(1), lost()),
        ask(
            StateRequest::Get { key: door.clone() },
            Ok(StateReply::Value(Some(versioned(3, "in")))),
        ),
        ask(unlock(4), Ok(StateReply::Unlocked)),
    ]
}

fn a_lock_expires() -> Vec<StateStep> {
    let door = key("lapse/door");
    let renew = StateRequest::Renew {
        lock: token(&door, 1),
        ttl: SHORT,
    };
    let late = Err(StateError::LockLost);
    vec![
        ask(lock(&door, LONG), locked(1)),
        // From here on, nothing depends on how fast the steps follow each other.
        ask(renew.clone(), locked(1)),
        StateStep::Await {
            key: door.clone(),
            ttl: LONG,
            token: Version(2),
        },
        ask(renew, late.clone()),
        ask(swap_under(&door, "late", token(&door, 1)), late),
        ask(StateRequest::Get { key: door.clone() }, Ok(StateReply::Value(None))),
        ask(lock(&door, SHORT), held(LONG)),
    ]
}

fn too_large() -> Vec<StateStep> {
    let too_large = |bytes, limit| Err(StateError::TooLarge { bytes, limit });
    let long = actor(&"k".repeat(KEY_BYTES_MAX + 1));
    let name = ValueKey {
        space: SPACE,
        name: vec![b'n'; VALUE_NAME_BYTES_MAX + 1].into(),
    };
    let value = key("large/value");
    let swap_large = StateRequest::Swap {
        key: value.clone(),
        expected: Expected::Anything,
        value: Some(vec![0; VALUE_BYTES_MAX + 1].into()),
        under: None,
    };
    vec![
        ask(
            claim(&long, epoch(1, 1), 1),
            too_large(KEY_BYTES_MAX + 1, KEY_BYTES_MAX),
        ),
        ask(
            save(&long, epoch(1, 1), ""),
            too_large(KEY_BYTES_MAX + 1, KEY_BYTES_MAX),
        ),
        ask(
            swap(&name, Expected::Anything, Some("")),
            too_large(VALUE_NAME_BYTES_MAX + 1, VALUE_NAME_BYTES_MAX),
        ),
        ask(
            lock(&name, LONG),
            too_large(VALUE_NAME_BYTES_MAX + 1, VALUE_NAME_BYTES_MAX),
        ),
        ask(swap_large, too_large(VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX)),
        ask(StateRequest::Get { key: value }, Ok(StateReply::Value(None))),
    ]
}

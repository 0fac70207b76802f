//! Writes the rows of reminders, in an order that keeps every entry findable: see `elastin_protocol::reminders`.

use std::time::Duration;

use bytes::Bytes;
use elastin_protocol::reminders::{DueRow, ReminderEntry, entry_key};
use elastin_protocol::store::{
    Expected, StateError, StateReply, StateRequest, StateStore, StoreFailure, ValueKey, Version,
};
use elastin_stores::StateStoreExt;
use elastin_types::{ActorId, Reminder};

/// Sets a reminder, replacing one of the same name.
pub(crate) async fn set(
    store: &dyn StateStore,
    actor: &ActorId,
    name: &str,
    due_ms: u64,
    every: Option<Duration>,
) -> Result<Reminder, StateError> {
    let before = entry(store, actor, name).await?.map(|(entry, _)| entry);
    let every_ms = every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX));
    let entry = ReminderEntry { due_ms, every_ms };
    put(store, due_row(actor, name, due_ms).key(), Some(Bytes::new())).await?;
    put(store, entry_key(actor, name), Some(entry.to_bytes())).await?;
    if let Some(before) = before.filter(|before| before.due_ms != due_ms) {
        remove_stale(store, &due_row(actor, name, before.due_ms)).await;
    }
    let name = name.to_owned();
    Ok(Reminder { name, due_ms })
}

/// Cancels a reminder, and returns it.
pub(crate) async fn forget(
    store: &dyn StateStore,
    actor: &ActorId,
    name: &str,
) -> Result<Option<Reminder>, StateError> {
    let Some((entry, _)) = entry(store, actor, name).await? else {
        return Ok(None);
    };
    put(store, entry_key(actor, name), None).await?;
    let row = due_row(actor, name, entry.due_ms);
    remove_stale(store, &row).await;
    Ok(Some(row.reminder()))
}

/// The entry of a reminder, if it is set.
pub(super) async fn entry(
    store: &dyn StateStore,
    actor: &ActorId,
    name: &str,
) -> Result<Option<(ReminderEntry, Version)>, StateError> {
    let key = entry_key(actor, name);
    let value = match store.call(StateRequest::Get { key }).await? {
        StateReply::Value(value) => value,
        other => unreachable!("expected a value as the reply to a get, got {other:?}"),
    };
    let Some(row) = value else { return Ok(None) };
    match ReminderEntry::from_bytes(&row.value) {
        Some(entry) => Ok(Some((entry, row.version))),
        None => {
            let reason = format!("the reminder \"{name}\" can't be decoded");
            Err(StoreFailure::Corrupt { reason }.into())
        }
    }
}

/// Advances a delivered reminder to its next due time, or removes it if there is none. A reminder that was replaced in the
/// meantime is not changed. Returns the next due time.
pub(super) async fn advance(
    store: &dyn StateStore,
    row: &DueRow,
    next: Option<ReminderEntry>,
    version: Version,
) -> Result<Option<u64>, StateError> {
    if let Some(next) = next {
        put(
            store,
            due_row(&row.actor, &row.name, next.due_ms).key(),
            Some(Bytes::new()),
        )
        .await?;
    }
    let swapped = store
        .call(StateRequest::Swap {
            key: entry_key(&row.actor, &row.name),
            expected: Expected::Version(version),
            value: next.map(ReminderEntry::to_bytes),
            under: None,
        })
        .await;
    match swapped {
        Ok(_) | Err(StateError::Conflict { .. }) => {}
        Err(error) => return Err(error),
    }
    put(store, row.key(), None).await?;
    Ok(next.map(|next| next.due_ms))
}

/// Removes a due row without a matching entry. If that fails, the next scan that finds it retries.
pub(super) async fn remove_stale(store: &dyn StateStore, row: &DueRow) {
    if let Err(error) = put(store, row.key(), None).await {
        tracing::debug!(%error, "could not remove a stale row of a reminder");
    }
}

async fn put(store: &dyn StateStore, key: ValueKey, value: Option<Bytes>) -> Result<(), StateError> {
    let swap = StateRequest::Swap {
        key,
        expected: Expected::Anything,
        value,
        under: None,
    };
    store.call(swap).await.map(drop)
}

fn due_row(actor: &ActorId, name: &str, due_ms: u64) -> DueRow {
    let name = name.to_owned();
    DueRow::new(actor.clone(), Reminder { name, due_ms })
}

//! The task that runs [`Reminders`]: scans due rows, calls the actors, and advances each reminder to its next due time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use elastin_clock::Clock;
use elastin_protocol::reminders::{DeliveryResult, DueRow, Pace, ReminderCommand, ReminderEvent, Reminders};
use elastin_protocol::store::{Space, StateReply, StateRequest, StateStore};
use elastin_stores::StateStoreExt;
use elastin_types::{CallError, Message, Outcome};
use tokio::task::JoinSet;

use super::{Inbox, Note, rows};

/// The deadline of an actor's reply. A reminder without a reply by then is delivered again.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The shortest sleep.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The node that delivers reminders.
pub(crate) trait ReminderHost: Send + Sync + 'static {
    /// The node's clock.
    fn clock(&self) -> &Clock;

    /// The call that delivers a reminder to its actor.
    fn message(&self, row: &DueRow, answer_time_max: Duration) -> Message;

    /// Sends a call, and waits for its outcome.
    fn call(&self, message: Message) -> impl Future<Output = Outcome> + Send + 'static;
}

/// The result of a scan or a delivery.
struct Finished {
    event: ReminderEvent,
    note: Option<Note>,
}

/// Runs until the node or its [`ReminderService`](super::ReminderService) is dropped.
pub(super) async fn run<H: ReminderHost>(store: Arc<dyn StateStore>, host: Weak<H>, mut inbox: Inbox) {
    let mut in_flight: JoinSet<Finished> = JoinSet::new();
    let mut commands = Vec::new();
    let Some(clock) = host.upgrade().map(|host| host.clock().clone()) else {
        return;
    };
    let sleeper = clock.sleeper("the reminders");
    let pace = if clock.can_skip() { Pace::RARE } else { Pace::default() };
    let mut reminders = Reminders::at_pace(pace);
    while host.strong_count() > 0 {
        // At least a tick of the timer, so that a time in the past does not keep a core busy.
        let due = reminders.next_timer().map(|at| at.max(clock.now() + SLEEP_MIN));
        let mut events = Vec::new();
        tokio::select! {
            changed = inbox.slots.changed() => match changed {
                Ok(()) => events.push(ReminderEvent::Slots(inbox.slots.borrow_and_update().clone())),
                Err(_) => return,
            },
            note = inbox.notes.recv() => match note {
                Some((slot, due_ms)) => events.push(ReminderEvent::Noted { slot, due_ms }),
                None => return,
            },
            Some(finished) = in_flight.join_next() => {
                // A panic is a bug: without its result, the scan or the delivery would never be retried.
                let Finished { event, note } = finished.expect("scans and deliveries do not panic");
                events.push(event);
                events.extend(note.map(|(slot, due_ms)| ReminderEvent::Noted { slot, due_ms }));
            }
            () = sleeper.sleep_until(due) => events.push(ReminderEvent::Tick),
        }
        for event in events {
            reminders.handle(clock.now(), clock.wall_ms(), event, &mut commands);
        }
        for command in commands.drain(..) {
            let store = Arc::clone(&store);
            match command {
                ReminderCommand::Scan { names, limit } => drop(in_flight.spawn(async move {
                    let event = scan(&*store, names.start, names.end, limit).await;
                    Finished { event, note: None }
                })),
                ReminderCommand::Deliver(row) => drop(in_flight.spawn(deliver(store, host.clone(), row))),
            }
        }
    }
}

async fn scan(store: &dyn StateStore, from: Bytes, until: Bytes, limit: u32) -> ReminderEvent {
    let request = StateRequest::Scan {
        space: Space::System,
        from,
        until: Some(until),
        limit,
    };
    match store.call(request).await {
        Ok(StateReply::Rows { rows, more }) => ReminderEvent::Scanned {
            rows: Ok(rows.into_iter().map(|(name, _)| name).collect()),
            more,
        },
        Ok(other) => unreachable!("expected rows as the reply to a scan, got {other:?}"),
        Err(error) => {
            tracing::warn!(%error, "could not read reminders; retrying later");
            let rows = Err(());
            ReminderEvent::Scanned { rows, more: false }
        }
    }
}

async fn deliver<H: ReminderHost>(store: Arc<dyn StateStore>, host: Weak<H>, row: DueRow) -> Finished {
    let (how, next) = match try_deliver(&*store, host, &row).await {
        Ok(next_due_ms) => (DeliveryResult::Over, next_due_ms),
        Err(reason) => {
            tracing::debug!(reminder = row.name, reason, "could not deliver a reminder; retrying");
            (DeliveryResult::Failed, None)
        }
    };
    let note = next.map(|due_ms| (row.slot, due_ms));
    Finished {
        event: ReminderEvent::Delivered { row, how },
        note,
    }
}

/// Delivers a reminder and advances its rows. Returns its next due time, or the reason to retry.
async fn try_deliver<H: ReminderHost>(
    store: &dyn StateStore,
    host: Weak<H>,
    row: &DueRow,
) -> Result<Option<u64>, String> {
    let entry = rows::entry(store, &row.actor, &row.name).await;
    let entry = entry.map_err(|error| error.to_string())?;
    let Some((entry, version)) = entry.filter(|(entry, _)| entry.due_ms == row.due_ms) else {
        rows::remove_stale(store, row).await;
        return Ok(None);
    };
    let (clock, call) = {
        let host = host.upgrade().ok_or("the node has stopped")?;
        (host.clock().clone(), host.call(host.message(row, ANSWER_TIME_MAX)))
    };
    let next = match call.await {
        Ok(_) => entry.next(clock.wall_ms()),
        Err(CallError::Rejected(reason)) => {
            tracing::error!(reminder = row.name, %reason, "cancelled a reminder: its actor rejects it");
            None
        }
        Err(error) => return Err(error.to_string()),
    };
    let advanced = rows::advance(store, row, next, version).await;
    advanced.map_err(|error| error.to_string())
}

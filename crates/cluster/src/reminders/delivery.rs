//! The task that runs [`Reminders`]: scans rows, tells actors, and leaves each reminder where it belongs next.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use elastin_clock::Clock;
use elastin_protocol::reminders::{DueRow, Pace, ReminderCommand, ReminderEvent, Reminders, Told};
use elastin_protocol::store::{Space, StateReply, StateRequest, StateStore};
use elastin_stores::StateStoreExt;
use elastin_types::{CallError, Message, Outcome};
use tokio::task::JoinSet;

use super::{Note, Notes, rows};

/// How long an actor may take to answer. A reminder whose answer has not come by then is told again.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The shortest sleep.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// What the teller needs of its node.
pub(crate) trait Tell: Send + Sync + 'static {
    /// The node's clock.
    fn clock(&self) -> &Clock;

    /// The call that tells an actor of a reminder.
    fn message(&self, row: &DueRow, answer_time_max: Duration) -> Message;

    /// Sends a call, and waits for its end.
    fn call(&self, message: Message) -> impl Future<Output = Outcome> + Send + 'static;
}

/// What one of the tasks under way came to.
struct Ended {
    event: ReminderEvent,
    note: Option<Note>,
}

/// Runs until the desk is gone.
pub(super) async fn run<T: Tell>(store: Arc<dyn StateStore>, tell: Weak<T>, mut hears: Notes) {
    let mut under_way: JoinSet<Ended> = JoinSet::new();
    let mut commands = Vec::new();
    let Some(clock) = tell.upgrade().map(|tell| tell.clock().clone()) else {
        return;
    };
    let sleeper = clock.sleeper("the reminders");
    let pace = if clock.can_skip() { Pace::RARE } else { Pace::default() };
    let mut serial_executor = Reminders::at_pace(pace);
    while tell.strong_count() > 0 {
        // Never shorter than a tick of the timer, so that a time in the past does not keep a core busy.
        let due = serial_executor.next_timer().map(|at| at.max(clock.now() + SLEEP_MIN));
        let mut events = Vec::new();
        tokio::select! {
            changed = hears.slots.changed() => match changed {
                Ok(()) => events.push(ReminderEvent::Slots(hears.slots.borrow_and_update().clone())),
                Err(_) => return,
            },
            note = hears.notes.recv() => match note {
                Some((slot, due_ms)) => events.push(ReminderEvent::Noted { slot, due_ms }),
                None => return,
            },
            Some(ended) = under_way.join_next() => {
                // A task that panics is a bug of ours: what it had to do would never be done.
                let Ended { event, note } = ended.expect("scans and tellings end");
                events.push(event);
                events.extend(note.map(|(slot, due_ms)| ReminderEvent::Noted { slot, due_ms }));
            }
            () = sleeper.sleep_until(due) => events.push(ReminderEvent::Tick),
        }
        for event in events {
            serial_executor.handle(clock.now(), clock.wall_ms(), event, &mut commands);
        }
        for command in commands.drain(..) {
            let store = Arc::clone(&store);
            match command {
                ReminderCommand::Scan { names, limit } => drop(under_way.spawn(async move {
                    let event = scan(&*store, names.start, names.end, limit).await;
                    Ended { event, note: None }
                })),
                ReminderCommand::Tell(row) => drop(under_way.spawn(tell_one(store, tell.clone(), row))),
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
        Ok(other) => unreachable!("a scan is answered by rows, not {other:?}"),
        Err(error) => {
            tracing::warn!(%error, "reminders could not be read; retrying later");
            let rows = Err(());
            ReminderEvent::Scanned { rows, more: false }
        }
    }
}

async fn tell_one<T: Tell>(store: Arc<dyn StateStore>, tell: Weak<T>, row: DueRow) -> Ended {
    let (how, next) = match attempt(&*store, tell, &row).await {
        Ok(next_due_ms) => (Told::Over, next_due_ms),
        Err(reason) => {
            tracing::debug!(
                reminder = row.name,
                reason,
                "a reminder was not told: it is tried again"
            );
            (Told::Failed, None)
        }
    };
    let note = next.map(|due_ms| (row.slot, due_ms));
    Ended {
        event: ReminderEvent::Told { row, how },
        note,
    }
}

/// Tells one reminder and sees to its rows; gives its next due time. An error says why it must be told again.
async fn attempt<T: Tell>(store: &dyn StateStore, tell: Weak<T>, row: &DueRow) -> Result<Option<u64>, String> {
    let entry = rows::entry(store, &row.actor, &row.name).await;
    let entry = entry.map_err(|error| error.to_string())?;
    let Some((entry, version)) = entry.filter(|(entry, _)| entry.due_ms == row.due_ms) else {
        rows::remove_left_over(store, row).await;
        return Ok(None);
    };
    let (clock, call) = {
        let tell = tell.upgrade().ok_or("the node is gone")?;
        (tell.clock().clone(), tell.call(tell.message(row, ANSWER_TIME_MAX)))
    };
    let next = match call.await {
        Ok(_) => entry.next(clock.wall_ms()),
        Err(CallError::Rejected(why)) => {
            tracing::error!(reminder = row.name, %why, "an actor takes no reminders any more: this one is dropped");
            None
        }
        Err(error) => return Err(error.to_string()),
    };
    let advanced = rows::advance(store, row, next, version).await;
    advanced.map_err(|error| error.to_string())
}

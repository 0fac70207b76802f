//! Drives reminders: writes the rows for this node's actors, and delivers the due reminders of the slots that this node owns.

mod delivery;
mod rows;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use elastin_protocol::store::StateStore;
use elastin_protocol::{Slot, View};
use elastin_types::NodeId;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

pub(crate) use delivery::ReminderHost;
pub(crate) use rows::{forget, set};

/// The most notes of new reminders that are queued. Further ones are dropped: the sweep finds their rows.
const NOTES_MAX: usize = 1024;

/// A note that a reminder was set: its slot, and its due time in milliseconds since the Unix epoch.
pub(crate) type Note = (Slot, u64);

/// Sends notes and owned slots to the delivery task, which ends when this is dropped.
pub(crate) struct ReminderService {
    notes: mpsc::Sender<Note>,
    slots: watch::Sender<BTreeSet<Slot>>,
    /// Taken by [`ReminderService::start`].
    inbox: Mutex<Option<Inbox>>,
}

/// The receivers of the delivery task.
struct Inbox {
    notes: mpsc::Receiver<Note>,
    slots: watch::Receiver<BTreeSet<Slot>>,
}

impl ReminderService {
    pub(crate) fn new() -> Self {
        let (notes, noted) = mpsc::channel(NOTES_MAX);
        let (slots, owned) = watch::channel(BTreeSet::new());
        let inbox = Inbox {
            notes: noted,
            slots: owned,
        };
        Self {
            notes,
            slots,
            inbox: Mutex::new(Some(inbox)),
        }
    }

    /// Starts the delivery task, once. Must be called inside a tokio runtime.
    pub(crate) fn start<H: ReminderHost>(&self, store: Arc<dyn StateStore>, host: Weak<H>) {
        let inbox = self.inbox.lock().take().expect("`start` is called once");
        tokio::spawn(delivery::run(store, host, inbox));
    }

    /// Updates the slots that this node owns.
    pub(crate) fn enter(&self, me: NodeId, view: &View) {
        let owned: BTreeSet<Slot> = Slot::all().filter(|slot| view.slots.owner(*slot).node == me).collect();
        self.slots.send_if_modified(|known| {
            let changed = *known != owned;
            *known = owned;
            changed
        });
    }

    /// Notes that a reminder was set.
    pub(crate) fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            tracing::debug!("dropped the note of a reminder; the next sweep finds its row");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elastin_golden as golden;

    #[test]
    fn the_encoding_of_a_note_is_unchanged() {
        let note: Note = (Slot::new(4095), 1_700_000_000_000);
        let line = golden::line("note", &golden::encoded(&note));
        golden::check("tests/wire/reminder.txt", &[line]);
    }
}

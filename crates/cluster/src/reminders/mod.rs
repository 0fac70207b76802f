//! Drives reminders: writes their rows for this node's actors, and tells those of the slots that this node owns.

mod delivery;
mod rows;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use elastin_protocol::store::StateStore;
use elastin_protocol::{Slot, View};
use elastin_types::NodeId;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

pub(crate) use delivery::Tell;
pub(crate) use rows::{forget, set};

/// How many notes of new reminders wait. One more is dropped: the sweep finds its row.
const NOTES_MAX: usize = 1024;

/// A reminder was set: its slot, and when it is due in milliseconds since the Unix epoch.
pub(crate) type Note = (Slot, u64);

/// Where the task that tells reminders hears of things. It ends when this is dropped.
pub(crate) struct ReminderService {
    notes: mpsc::Sender<Note>,
    slots: watch::Sender<BTreeSet<Slot>>,
    task: Mutex<Option<Notes>>,
}

/// The other end.
struct Notes {
    notes: mpsc::Receiver<Note>,
    slots: watch::Receiver<BTreeSet<Slot>>,
}

impl ReminderService {
    pub(crate) fn new() -> Self {
        let (notes, noted) = mpsc::channel(NOTES_MAX);
        let (slots, owned) = watch::channel(BTreeSet::new());
        let hears = Notes {
            notes: noted,
            slots: owned,
        };
        Self {
            notes,
            slots,
            task: Mutex::new(Some(hears)),
        }
    }

    /// Starts the task, once. Must be called inside a tokio runtime.
    pub(crate) fn start<T: Tell>(&self, store: Arc<dyn StateStore>, tell: Weak<T>) {
        let hears = self.task.lock().take().expect("a node goes on the network once");
        tokio::spawn(delivery::run(store, tell, hears));
    }

    /// The directory may have changed executor.
    pub(crate) fn enter(&self, me: NodeId, view: &View) {
        let owned: BTreeSet<Slot> = Slot::all().filter(|slot| view.slots.owner(*slot).node == me).collect();
        self.slots.send_if_modified(|known| {
            let changed = *known != owned;
            *known = owned;
            changed
        });
    }

    /// A reminder was set.
    pub(crate) fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            tracing::debug!("a note of a reminder was dropped: its row is found later");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn a_note_is_encoded_as_it_was() {
        let note: Note = (Slot::new(4095), 1_700_000_000_000);
        let line = golden::line("note", &golden::encoded(&note));
        golden::check("tests/wire/reminder.txt", &[line]);
    }
}

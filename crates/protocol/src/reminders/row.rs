//! Keys and values of reminder rows. This is a storage format: changes must stay compatible with existing stores.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use elastin_types::{ActorId, Reminder};
use serde::{Deserialize, Serialize};

use crate::store::{Space, ValueKey};
use crate::{SLOT_COUNT, Slot};

/// Name prefix of due rows.
const DUE_PREFIX: &[u8] = b"reminder/due/";
/// Name prefix of entries.
const ENTRY_PREFIX: &[u8] = b"reminder/of/";

/// Index row of a reminder by due time. It has a name and no value; names are ordered by slot, then by due time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueRow {
    /// The actor's slot.
    pub slot: Slot,
    /// When it is due, in milliseconds since the Unix epoch.
    pub due_ms: u64,
    /// The actor.
    pub actor: ActorId,
    /// The reminder's name.
    pub name: String,
}

/// Schedule of a reminder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReminderEntry {
    /// When it is due next, in milliseconds since the Unix epoch.
    pub due_ms: u64,
    /// The period; `None` for a one-shot reminder.
    pub every_ms: Option<u64>,
}

impl DueRow {
    /// The due row of a reminder.
    pub fn new(actor: ActorId, reminder: Reminder) -> Self {
        Self {
            slot: Slot::of(&actor),
            due_ms: reminder.due_ms,
            actor,
            name: reminder.name,
        }
    }

    /// The reminder to deliver to the actor.
    pub fn reminder(&self) -> Reminder {
        Reminder {
            name: self.name.clone(),
            due_ms: self.due_ms,
        }
    }

    /// The key of the row.
    pub fn key(&self) -> ValueKey {
        let mut name = slot_start(self.slot.index());
        name.extend(self.due_ms.to_be_bytes());
        name.extend(encode(&(&self.actor, &self.name)));
        system(name)
    }

    /// Parses the name of a row; `None` if it is not a due row.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let rest = name.strip_prefix(DUE_PREFIX)?;
        let (slot, rest) = rest.split_first_chunk()?;
        let (due, rest) = rest.split_first_chunk()?;
        let slot = usize::from(u16::from_be_bytes(*slot));
        let (actor, name): (ActorId, String) = postcard::from_bytes(rest).ok()?;
        (slot < SLOT_COUNT).then(|| Self {
            slot: Slot::new(slot),
            due_ms: u64::from_be_bytes(*due),
            actor,
            name,
        })
    }
}

impl ReminderEntry {
    /// Encodes the entry's row.
    pub fn to_bytes(self) -> Bytes {
        encode(&self).into()
    }

    /// Decodes an entry's row; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// The entry after this due time has been delivered; `None` for a one-shot reminder. Skips due times that have
    /// already passed: they would all be delivered at once.
    pub fn next(self, wall_ms: u64) -> Option<Self> {
        let every_ms = self.every_ms?.max(1);
        let missed = wall_ms.saturating_sub(self.due_ms) / every_ms;
        let due_ms = self.due_ms.saturating_add(every_ms.saturating_mul(missed + 1));
        Some(Self { due_ms, ..self })
    }
}

/// The key of a reminder's entry.
pub fn entry_key(actor: &ActorId, name: &str) -> ValueKey {
    let mut key = ENTRY_PREFIX.to_vec();
    key.extend(encode(&(actor, name)));
    system(key)
}

/// The names of the due rows of some slots.
pub fn slot_range(slots: Range<usize>) -> Range<Bytes> {
    slot_start(slots.start).into()..slot_start(slots.end).into()
}

/// A time span in whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn slot_start(index: usize) -> Vec<u8> {
    let mut name = DUE_PREFIX.to_vec();
    // The end of the last slot's range is one beyond the last slot.
    name.extend(u16::try_from(index).expect("slot indexes fit 16 bits").to_be_bytes());
    name
}

fn system(name: Vec<u8>) -> ValueKey {
    ValueKey {
        space: Space::System,
        name: name.into(),
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("rows are plain data")
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActorType, KEY_BYTES_MAX, REMINDER_NAME_BYTES_MAX};

    use super::*;
    use crate::store::VALUE_NAME_BYTES_MAX;

    fn row(key: &str, name: &str, due_ms: u64) -> DueRow {
        let name = name.to_owned();
        DueRow::new(ActorId::new(ActorType::of("Folder"), key), Reminder { name, due_ms })
    }

    #[test]
    fn row_names_round_trip_and_sort_by_time() {
        let early = row("a", "bill", 255);
        let late = row("a", "apple", 256);
        assert_eq!(DueRow::parse(&early.key().name), Some(early.clone()));
        assert!(early.key() < late.key(), "rows sort by time before name");
        let range = slot_range(early.slot.index()..early.slot.index() + 1);
        assert!(range.contains(&early.key().name));
        assert!(slot_range(0..SLOT_COUNT).contains(&early.key().name));
        assert_eq!(DueRow::parse(b"reminder/due/xx"), None);
        assert_eq!(DueRow::parse(&entry_key(&early.actor, "bill").name), None);
    }

    #[test]
    fn row_encoding_is_stable() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let row = row("k", "bill", 258);
        let (due, entry) = (row.key().name, entry_key(&row.actor, "bill").name);
        assert_eq!(
            hex(&due[DUE_PREFIX.len()..]),
            "0cc1000000000000010200fdf5d53102016b0462696c6c"
        );
        assert_eq!(hex(&entry[ENTRY_PREFIX.len()..]), "00fdf5d53102016b0462696c6c");
        let entry = ReminderEntry {
            due_ms: 300,
            every_ms: Some(5),
        };
        assert_eq!(hex(&entry.to_bytes()), "ac020105");
        assert_eq!(ReminderEntry::from_bytes(&entry.to_bytes()), Some(entry));
    }

    #[test]
    fn the_longest_row_name_is_within_the_limit() {
        let longest = row(
            &"k".repeat(KEY_BYTES_MAX),
            &"n".repeat(REMINDER_NAME_BYTES_MAX),
            u64::MAX,
        );
        assert!(longest.key().name.len() <= VALUE_NAME_BYTES_MAX);
    }

    #[test]
    fn missed_periods_are_skipped() {
        let entry = |due_ms| ReminderEntry {
            due_ms,
            every_ms: Some(100),
        };
        assert_eq!(entry(1000).next(1000), Some(entry(1100)));
        assert_eq!(entry(1000).next(1099), Some(entry(1100)));
        assert_eq!(entry(1000).next(1550), Some(entry(1600)));
        assert_eq!(entry(1000).next(10), Some(entry(1100)));
        let once = ReminderEntry {
            due_ms: 7,
            every_ms: None,
        };
        assert_eq!(once.next(7), None);
        assert_eq!(entry(u64::MAX).next(0), Some(entry(u64::MAX)));
    }
}

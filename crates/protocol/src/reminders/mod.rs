//! Reminders: rows in the state store that the owner of an actor's slot turns into messages when they are due.
//!
//! ```text
//!   actor's node                          store                              owner of the slot
//!   ctx.remind ── due row, then entry ──►  due rows, by (slot, due)  ◄── scan ── Reminders (due rows, next scan)
//!        └───────── "noted" ─────────────────────────────────────────────────►    │
//!   handler ◄──────────────── the reminder, as a call ────────────────────────────┘ until it is answered
//! ```
//!
//! A reminder has two rows. Its *entry*, by actor and name, is authoritative: it holds the due time and the period. Its
//! *due row* indexes it by slot and time, for the owner of the slot. The due row is written first and removed last, so
//! an entry always has one. A due row that does not match its entry is stale, and the owner removes it.
//!
//! Delivery is retried until the actor has replied, so it is at-least-once. That also holds when owners change or
//! crash, because the rows are the only durable state. Times are wall-clock times: a clock that is set back delays
//! reminders, and loses none.

mod machine;
mod pace;
mod row;

pub use machine::{DeliveryResult, ReminderCommand, ReminderEvent, Reminders};
pub use pace::Pace;
pub use row::{DueRow, ReminderEntry, entry_key, slot_range};

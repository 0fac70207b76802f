//! Reminders: rows in the state store that the owner of an actor's slot turns into messages when they are due.
//!
//! ```text
//!   actor's node                          store                              owner of the slot
//!   ctx.remind ── due row, then entry ──►  due rows, by (slot, due)  ◄── scan ── Reminders (what is due, when to look)
//!        └───────── "noted" ─────────────────────────────────────────────────►    │
//!   handler ◄──────────────── the reminder, as a call ────────────────────────────┘ until it is answered
//! ```
//!
//! A reminder has two rows. Its *entry*, by actor and name, is the truth: when it is due and how often. Its *due row* is
//! where the owner of the slot finds it in time. The due row is written first and removed last, so an entry always has one;
//! a due row whose entry says otherwise is left over, and removed when it is met.
//!
//! A reminder is told again until the actor has answered, so it comes at least once. That also holds when owners change or
//! crash, because nothing but the rows is remembered. Times are those of the machines' wall clocks: a clock that is set back
//! delays reminders, and loses none.

mod machine;
mod pace;
mod row;

pub use machine::{ReminderCommand, ReminderEvent, Reminders, Told};
pub use pace::Pace;
pub use row::{DueRow, ReminderEntry, entry_key, slot_range};

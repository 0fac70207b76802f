//! One node's execution of actors: activations, mailboxes, the work stage, timers, profiling.
//!
//! A [`Runtime`] alone is a whole system in one process; in a cluster a driver gives it an [`Outside`] and moves
//! activations in and out.
//!
//! ```
//! # extern crate elastin_actor as elastin;
//! use elastin::{Actor, CallFailed, Ref, handlers};
//! use elastin_runtime::Runtime;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Actor, Serialize, Deserialize, Default)]
//! struct Account {
//!     balance: i64,
//! }
//!
//! #[handlers]
//! impl Account {
//!     fn draw(&mut self, amount: i64) -> Result<i64, String> {
//!         if amount > self.balance {
//!             return Err(format!("only {} left", self.balance));
//!         }
//!         self.balance -= amount;
//!         Ok(self.balance)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let runtime = Runtime::builder().register::<Account>().build().unwrap();
//! let account: Ref<Account> = runtime.client().actor("ada");
//! assert_eq!(account.draw(5).await, Err(CallFailed::Application("only 0 left".into())));
//! # }
//! ```

// The macros name the crate by the name that users know.
#[cfg(test)]
extern crate elastin_actor as elastin;

mod any_seat;
mod busy;
mod call_numbers;
mod caution;
mod cpu_clock;
mod entrusted;
mod errand;
mod error;
mod habits;
mod heavy;
mod hook_turn;
mod idle_cell;
mod mailbox;
mod marks;
mod outside;
mod profile;
mod profile_cell;
mod profile_table;
mod queue;
mod registry;
mod runtime;
mod scheduler;
mod seat;
mod seat_id;
mod settings;
mod share;
mod shared;
mod sharing;
mod since;
mod sleepers;
mod snapshot;
mod sync;
mod timers;
mod worker;

pub use caution::Caution;
pub use elastin_actor::{ReminderDone, ReminderError, ReminderRequest, ReplySlot, SaveDone, SaveError};
pub use errand::Errand;
pub use error::{ActivateError, BuildError, FreezeError, Undeliverable};
pub use outside::{Grant, LocalOnly, Mail, Outside, StateImage};
pub use profile::{Interest, NodeSnapshot, Stats, TypeTotals};
pub use runtime::{Builder, FreezeDone, Runtime};
pub use settings::{INLINE_DEPTH_MAX, MAILBOX_MAX, Settings};

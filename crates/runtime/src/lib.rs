//! One node's execution of actors: activations, mailboxes, scheduler, timers, profiling.
//!
//! A [`Runtime`] alone is a complete system in one process. In a cluster a driver connects it to other nodes through a
//! [`Remote`], and moves activations in and out.
//!
//! | module | content |
//! |---|---|
//! | `runtime`, `settings`, `tuning` | public handle, builder, settings; constants with their reasons |
//! | `registry` | all cells of the node, by actor |
//! | `cell` | an actor's activation: enqueueing, running and answering messages, lifecycle, freezing, saving |
//! | `scheduler` | worker threads, run queues, work stealing, CPU quota, fence |
//! | `remote` | interface to the rest of the cluster |
//! | `timers` | deadlines and timers |
//! | `profile`, `active_set` | measurements and snapshots |
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

// The macros refer to the crate by its public name.
#[cfg(test)]
extern crate elastin_actor as elastin;

mod active_set;
mod backoff;
mod cell;
mod coarse_instant;
mod error;
mod inner;
mod profile;
mod registry;
mod remote;
mod runtime;
mod scheduler;
mod settings;
mod sync;
mod timers;
mod tuning;

pub use backoff::AdaptiveBackoff;
pub use elastin_actor::{ReminderDone, ReminderError, ReminderRequest, ReplySender, SaveDone, SaveError};
pub use error::{ActivateError, BuildError, FreezeError, Undeliverable};
pub use profile::{Interest, NodeSnapshot, Stats, TypeTotals};
pub use remote::{Grant, InboundMessage, LocalOnly, Remote, StateImage};
pub use runtime::{Builder, FreezeDone, Runtime};
pub use scheduler::inline_task::InlineTask;
pub use settings::Settings;
pub use tuning::{INLINE_DEPTH_MAX, MAILBOX_MAX};

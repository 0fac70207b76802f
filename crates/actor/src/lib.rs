//! The actor API: traits, references, context.
//!
//! An actor is a struct with `#[derive(Actor)]`; its handlers are an `impl` block with `#[handlers]`. A [`Ref`] has a
//! method for each handler. The method returns a [`Call`]: await it for the reply, or send it as a tell. Clock, timers
//! and delivery go through the [`Host`] and [`Invoke`] traits. Nothing here depends on the scheduler, and nothing here
//! reads a clock.
//!
//! ```
//! # extern crate elastin_actor as elastin;
//! use elastin::{Actor, Ctx, Ref, handlers};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Actor, Serialize, Deserialize, Default)]
//! struct Counter {
//!     count: u64,
//!     partner: Option<Ref<Counter>>, // a property that policies can name
//! }
//!
//! #[handlers]
//! impl Counter {
//!     async fn add(&mut self, ctx: &Ctx, n: u64) -> u64 {
//!         let partner = self.partner.get_or_insert_with(|| ctx.actor("partner"));
//!         partner.get().tell().await.ok();
//!         self.count += n;
//!         self.count
//!     }
//!
//!     fn get(&self) -> u64 {
//!         self.count
//!     }
//! }
//!
//! assert_eq!(elastin::schema_of::<Counter>().functions[0].name, "add");
//! ```
//!
//! `async` handlers with `&self` share their actor: they interleave at their `.await` points. With `#[reentrant]` they
//! may also change it, behind a `Mutex` or an atomic.
//!
//! ```
//! # extern crate elastin_actor as elastin;
//! use std::collections::BTreeMap;
//! use std::sync::Mutex;
//!
//! use elastin::{Actor, handlers};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Actor, Serialize, Deserialize, Default)]
//! struct Resolver {
//!     suffix: String,
//!     known: Mutex<BTreeMap<String, u32>>,
//! }
//!
//! async fn ask_the_network(name: &str) -> u32 {
//!     name.len() as u32
//! }
//!
//! #[handlers]
//! impl Resolver {
//!     /// Runs exclusively.
//!     fn set_suffix(&mut self, suffix: String) {
//!         self.suffix = suffix;
//!     }
//!
//!     /// Any number of these are in flight at once.
//!     async fn lookup(&self, name: String) -> u32 {
//!         ask_the_network(&(name + &self.suffix)).await
//!     }
//!
//!     /// Caches the result.
//!     #[reentrant]
//!     async fn resolve(&self, name: String) -> u32 {
//!         if let Some(known) = self.known.lock().unwrap().get(&name) {
//!             return *known;
//!         }
//!         let found = ask_the_network(&name).await;
//!         self.known.lock().unwrap().insert(name, found);
//!         found
//!     }
//! }
//!
//! let functions = elastin::schema_of::<Resolver>().functions;
//! let only_read: Vec<_> = functions.iter().filter(|function| function.read_only).collect();
//! assert_eq!(only_read[0].name, "lookup");
//! assert_eq!(only_read.len(), 1);
//! ```

mod actor;
mod call;
mod call_context;
mod codec;
mod context;
mod envelope;
mod error;
mod function;
mod host;
mod instance;
mod invoke;
mod measure;
mod oneshot;
mod persist;
mod reference;
mod references;
mod reminder;
mod reply;
mod scope;
mod shared_instance;
mod span;
mod tell;
mod tuning;
mod turn;

pub use actor::{Actor, Handlers, Hook, HookFuture, TypedRef, Undecoded, schema_of};
pub use call::{Call, CallFuture};
pub use call_context::MessageContext;
pub use codec::{StateCodecError, decode_state, encode_state, encoded_state_size};
pub use context::{Client, Ctx};
pub use elastin_macros::{Actor, HoldsReferences, handlers};
pub use error::CallFailed;
pub use function::Function;
pub use host::{CellHandle, Finished, Host, Invoke, NotPosted, Start, Ticket, Timer, TimerId, TurnMeasure, WakeId};
pub use instance::Instance;
pub use persist::{Persist, SaveDone, SaveError};
pub use reference::{RawRef, Ref};
pub use references::HoldsReferences;
pub use reminder::{ReminderDone, ReminderError, ReminderRequest};
pub use reply::{ReplySender, RetryHook};
pub use scope::{Scope, TurnOwner};
pub use shared_instance::{Held, SharedInstance};
pub use tell::Tell;
pub use turn::Turn;

/// Items named by macro-generated code. Not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use elastin_types::{
        ActorId, CallError, FunctionSchema, Message, Method, ParameterSchema, Property, PropertySchema, Rejected,
        Reminder,
    };

    pub use crate::actor::{Actor, Handlers, Hook, HookFuture, TypedRef, Undecoded};
    pub use crate::call::Call;
    pub use crate::context::Ctx;
    pub use crate::envelope::received;
    pub use crate::error::{CallFailed, flatten};
    pub use crate::function::{Function, are_distinct};
    pub use crate::instance::Instance;
    pub use crate::persist::Persist;
    pub use crate::reference::RawRef;
    pub use crate::references::{ByNothing, ByReferences, HoldsReferences, Probe, each_of};
    pub use crate::reply::ReplySender;
    pub use crate::shared_instance::SharedInstance;
    pub use crate::turn::Turn;
}

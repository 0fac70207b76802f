//! One node's execution of actors: activations, mailboxes, the work stage, timers, profiling.
//!
//! A [`Runtime`] alone is a whole system in one process; in a cluster a driver gives it an [`Outside`] and moves
//! activations in and out.

mod any_seat;
mod clock;
mod error;
mod heavy;
mod hook_turn;
mod mailbox;
mod outside;
mod profile;
mod profile_table;
mod registry;
mod runtime;
mod scheduler;
mod seat;
mod settings;
mod share;
mod shared;
mod timers;

pub use elastin_actor::ReplySlot;
pub use error::{ActivateError, BuildError, FreezeError, Undeliverable};
pub use outside::{Grant, LocalOnly, Mail, Outside, SaveDone, SaveError, StateImage};
pub use profile::{Interest, NodeSnapshot, Stats};
pub use runtime::{Builder, FreezeDone, Runtime};
pub use settings::{INLINE_DEPTH_MAX, MAILBOX_MAX, Settings};

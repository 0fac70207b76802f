//! The global elasticity manager (GEM). Paper 000, section 4.2, algorithm 2.
//!
//! ```text
//!  Report … ─► view ─► drain ─► reserve ─► make room ─► balance ─► scale
//!                          └──────── proposals ────────┘       └─► vote ─► AddServers, RemoveServer
//!                                      ReportReply …
//! ```
//! All steps work on one view, each on what the earlier ones have left of it, so that no room is given away twice.

mod balance;
mod drain;
mod event;
mod gem;
mod make_room;
mod provision;
mod reserve;
mod room;
mod scale;
mod view;
mod vote;

pub use event::{GemCommand, GemEvent};
pub use gem::Gem;

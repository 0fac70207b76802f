//! The global elasticity manager (GEM). PLASMA (EuroSys 2020), section 4.2, algorithm 2.
//!
//! ```text
//!  Report … ─► view ─► drain ─► reserve ─► make room ─► balance ─► scale
//!                          └──────── proposals ────────┘       └─► vote ─► AddServers, RemoveServer
//!                                      ReportReply …
//! ```
//! All steps share one view. Each step sees the plans of the earlier ones, so that no room is assigned twice.

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

//! The local elasticity manager (LEM): one per server. PLASMA (EuroSys 2020), section 4.2, algorithm 1.
//!
//! ```text
//!  Period ─► evaluate rules ─► Report ─► (GEM) ─► ReportReply      propose/
//!                    colocate agreement with other hosts           propose/
//!                    one winner per unit                           arbitrate
//!                    Query ─► (target) ─► QueryReply               admit/
//!                    Move … MoveEnded                              execute
//!                    Record at every step                          ../record
//! ```
//! The steps share the view of the own server in `server/`. [`Lem`] passes events to them, and the result of one step
//! to the next.

mod admit;
mod arbitrate;
mod event;
mod execute;
mod lem;
mod placement;
mod propose;
mod server;

pub use event::{LemCommand, LemEvent, MoveId};
pub use lem::Lem;

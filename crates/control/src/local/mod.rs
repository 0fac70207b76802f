//! The local elasticity manager (LEM): one per server. PLASMA (EuroSys 2020), section 4.2, algorithm 1.
//!
//! ```text
//!  Period ─► evaluate rules ─► Report ─► (GEM) ─► ReportReply     propose
//!                                     settle pairs with other hosts  propose
//!                                     one winner per unit            arbitrate
//!                                     Query ─► (target) ─► QueryReply  admit
//!                                     Move … MoveEnded               execute
//!                                     Record at every step           record
//! ```

mod admission;
mod colocate_agreement;
mod companions;
mod event;
mod execution;
mod lem;
mod period;
mod placement;
mod promises;
mod relations;
mod report;
mod reservations;
mod round;
mod separation;
mod split_unit;
mod units;

pub use event::{LemCommand, LemEvent, MoveId};
pub use lem::Lem;

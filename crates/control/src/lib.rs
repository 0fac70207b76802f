//! Elastin's elasticity decisions as pure state machines: event in, commands out.
//!
//! ```text
//!              ┌────────────────────── global manager (GEM) ──────────────────────┐
//!              │ reports ─► view ─► reserve, balance, drain ─► proposals, scaling  │
//!              └──▲──────────────────────────────────────────────────┬────────────┘
//!          Report │                                      ReportReply │ (also when empty)
//!              ┌──┴──────────────────────────────────────────────────▼────────────┐
//!  Period ────►│ local manager (LEM), one per server                              │──► Move
//!              │ propose ─► arbitrate ─► admit (Query) ─► execute ─► record        │──► Record
//!              └──────────────────────────────────────────────────────────────────┘
//! ```
//! Both managers follow PLASMA (EuroSys 2020), section 4. A manager only returns commands: nothing here reads a clock,
//! opens a socket or draws from a random source of its own.
//!
//! State that must outlive a global manager (reservations, hysteresis streaks) is kept by the local managers. It is
//! part of every report, so a global manager can fail or be replaced between two periods.

mod capacity;
mod config;
mod context;
mod decision;
mod explain;
mod global;
mod limits;
mod local;
mod member;
mod message;
mod place;
mod random;
mod record;
mod refusal;
mod settings;

pub use capacity::Capacity;
pub use config::Config;
pub use decision::{Candidate, Cause, Change, Decision, DecisionId, Manager, Outcome, Purpose, ReleaseReason};
pub use global::{Gem, GemCommand, GemEvent};
pub use local::{Lem, LemCommand, LemEvent, MoveId};
pub use member::Member;
pub use message::{
    Adjustment, ControlMessage, Direction, End, Held, NewActor, Proposal, Query, QueryReply, Report, ReportReply,
    Reservation, Rest, ServerDigest, Settle, SettleAnswer, SettleReply, Streak, Unit, Vote, Wish,
};
pub use place::{PlaceReason, Placement};
pub use refusal::Refusal;
pub use settings::{HYSTERESIS_PERIODS, RELATION_PERIODS, RELEASE_PERIODS, RELEASE_USE, Settings};

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
//! Both follow paper 000, section 4. A manager knows nothing of how its commands are carried out: nothing here reads a
//! clock, opens a socket or draws a random number of its own. What must outlive a global manager (reservations, how long a
//! server has been beyond a bound) is kept by the local ones and comes with every report, so that a global manager can die
//! or change from one period to the next.

mod arbitrate;
mod capacity;
mod config;
mod decision;
mod explain;
mod global;
mod limits;
mod local;
mod member;
mod message;
mod place;
mod random;
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

//! Programmable elasticity for stateful services: write actors and, beside them, a few lines of policy; Elastin places
//! the actors over servers, moves them while they run, and adds and removes servers.
//!
//! An application is one program: its actors and its policy, given to [`Elastin::app`].
//!
//! ```no_run
//! use elastin::prelude::*;
//!
//! #[derive(Actor, Serialize, Deserialize, Default)]
//! struct Counter {
//!     value: u64,
//! }
//!
//! #[handlers]
//! impl Counter {
//!     async fn add(&mut self, amount: u64) -> u64 {
//!         self.value += amount;
//!         self.value
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     Elastin::app().actor::<Counter>().main()
//! }
//! ```

// The actor macros expand to paths below `elastin`, also in this crate's own tests.
#[cfg(test)]
extern crate self as elastin;

mod address;
pub mod admin;
mod app;
mod client_membership;
mod cluster;
mod command;
mod elasticity;
mod embedded;
mod in_process;
mod member;
mod members;
mod metrics;
mod policy_source;
mod provision;
mod retrying_remote;
mod server;
mod settings;
mod status;
mod trust;
#[cfg(feature = "planted-bugs")]
mod unfenced;
mod usage;
mod wire;
#[cfg(test)]
mod wire_tests;
mod wire_versions;

pub use address::ClusterAddress;
pub use app::{App, AppError, Elastin};
pub use cluster::Cluster;
pub use command::log_to_stderr;
pub use elastin_actor::Client;
pub use elastin_cluster::{Authority, AuthorityError};
pub use elastin_control::{
    Capacity, Change, Decision, DecisionId, Outcome as DecisionOutcome, Settings as ElasticitySettings,
};
pub use elastin_macros::policy;
pub use elastin_protocol::MoveError;
pub use elastin_types as types;
pub use embedded::{Embedded, EmbeddedBuilder, EmbeddedError};
pub use in_process::{InProcess, InProcessBuilder, TimeError};
pub use metrics::MetricsError;
pub use policy_source::PolicySource;
pub use status::ServerStatus;

/// The names that an application's code needs in scope.
pub mod prelude {
    pub use elastin_actor::{Actor, Call, CallFailed, Client, Ctx, HoldsReferences, Ref, handlers};
    pub use elastin_types::{CallError, Reminder};
    pub use serde::{Deserialize, Serialize};

    pub use crate::{Elastin, PolicySource, policy};
}

#[doc(hidden)]
pub use elastin_actor::__private;

/// Runs the examples of `docs/clusters.md` as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clusters.md")]
struct ClustersPage;

//! Clusters of real processes for tests: an application whose actors detect calls that are lost, run twice, or run out
//! of order.

mod actors;
mod caller;
mod embedded;
mod etcd_cluster;
mod gate;
mod history;
mod load;
mod probe;
mod reminder_actor;
mod seeded_rng;
mod wait;
mod witness;

pub use actors::{Burner, Feeder, Journal, Ledger, Log, SLOW_TURN_BEGAN, SLOW_TURN_ENDS};
pub use caller::Caller;
pub use embedded::{embedded, server_names};
pub use etcd_cluster::{EtcdElastin, LEASE_SECONDS};
pub use gate::Gate;
pub use history::{Counts, History, Known};
pub use load::{LEDGERS, Load, await_service, log_of, violations};
pub use probe::Probe;
pub use reminder_actor::ReminderActor;
pub use seeded_rng::SeededRng;
pub use wait::{wait_for, wait_for_some};
pub use witness::{Observation, Testimony, WITNESSES, Witness};

/// The application of the tests.
pub fn app() -> elastin::App {
    elastin::Elastin::app()
        .name("testkit")
        .actor::<Journal>()
        .actor::<Ledger>()
        .actor::<Feeder>()
        .actor::<Burner>()
        .actor::<ReminderActor>()
        .actor::<Probe>()
        .actor::<Witness>()
        .actor::<Gate>()
}

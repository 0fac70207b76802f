//! Measurements of a process, as plain data.

use elastin_cluster::NodeDriverMeasures;
use elastin_runtime::{Stats, TypeTotals};
use elastin_stores::StoreMeasures;
use elastin_types::ServerStats;

/// Measurements of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measures {
    /// The process's name in its cluster.
    pub(crate) name: String,
    /// The execution of actors, if the process is a server.
    pub(crate) server: Option<ServerMeasures>,
    /// Its state store.
    pub(crate) store: StoreMeasures,
    /// The node driver, with the receive and send stages.
    pub(crate) driver: NodeDriverMeasures,
    /// The number of servers, if this process supervises them.
    pub(crate) servers: Option<u64>,
}

/// Measurements of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerMeasures {
    /// The current state of the work stage.
    pub(crate) work: Stats,
    /// Totals of each actor type, up to the end of the last period.
    pub(crate) types: Vec<TypeTotals>,
    /// The server's usage in the last period.
    pub(crate) usage: Option<ServerStats>,
    /// The messages in mailboxes at the end of the last period.
    pub(crate) mailbox_messages: u64,
}

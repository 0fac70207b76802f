//! What is measured of a process, as plain data.

use elastin_cluster::NodeDriverMeasures;
use elastin_runtime::{Stats, TypeTotals};
use elastin_stores::StoreMeasures;
use elastin_types::ServerStats;

/// What is measured of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measures {
    /// The process's name in its cluster.
    pub(crate) name: String,
    /// Its execution of actors, if it hosts any.
    pub(crate) server: Option<ServerMeasures>,
    /// Its state store.
    pub(crate) store: StoreMeasures,
    /// Its part in the cluster, and the stages that receive and send.
    pub(crate) driver: NodeDriverMeasures,
    /// How many servers there are, if this process supervises them.
    pub(crate) servers: Option<u64>,
}

/// What is measured of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerMeasures {
    /// The work stage, now.
    pub(crate) work: Stats,
    /// What actors of each type did, up to the end of the last period.
    pub(crate) types: Vec<TypeTotals>,
    /// The server, in the last period.
    pub(crate) usage: Option<ServerStats>,
    /// How many messages waited in mailboxes at the end of the last period.
    pub(crate) mailbox_messages: u64,
}

//! Profiling: measurements of actors and of the node, collected into snapshots.

pub(crate) mod heavy_hitters;
pub(crate) mod profile_cell;
pub(crate) mod snapshot;
pub(crate) mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_types::{ActorStats, ActorType, ServerStats};

/// The actors that a snapshot lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// All actors.
    All,
    /// Actors of some types: those that rules name.
    Types {
        /// The types whose actors are listed if they were active in the period.
        busy: BTreeSet<ActorType>,
        /// The types whose actors are always listed. If there are any, a snapshot visits every actor of the node.
        always: BTreeSet<ActorType>,
    },
}

impl Interest {
    /// Whether actors of this type are listed if they were active.
    pub fn covers(&self, kind: ActorType) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { busy, always } => busy.contains(&kind) || always.contains(&kind),
        }
    }

    /// Whether actors of this type are listed even if they were idle.
    pub fn covers_idle(&self, kind: ActorType) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { always, .. } => always.contains(&kind),
        }
    }

    /// Whether any idle actors are listed.
    pub fn lists_idle(&self) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { always, .. } => !always.is_empty(),
        }
    }
}

/// Work of a runtime and its actors since the last snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSnapshot {
    /// Time since the last snapshot.
    pub period: Duration,
    /// The server. The runtime does not measure the network: its use is 0 and its capacity unknown here.
    pub server: ServerStats,
    /// How many messages are queued in mailboxes.
    pub mailbox_messages: u64,
    /// The actors of interest.
    pub actors: Vec<ActorStats>,
}

/// Scheduler metrics since the runtime started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// How many threads run turns.
    pub workers: usize,
    /// How many activations there are.
    pub activations: u64,
    /// How many turns ran out of mailboxes. Inline turns are only counted per actor.
    pub turns: u64,
    /// How many cells wait for a worker right now.
    pub queued: usize,
    /// How many turns panicked.
    pub panics: u64,
    /// How many calls and one-way messages found a mailbox full. A sender that waits for room counts each time it finds
    /// none.
    pub overloads: u64,
    /// How often a worker paused because the process had used up its CPU quota.
    pub throttled: u64,
}

/// Totals of all actors of one type since the runtime started, up to the last snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeTotals {
    /// The type's name.
    pub name: String,
    /// How many turns ran, by sampling.
    pub turns: u64,
    /// How long they ran, by sampling.
    pub busy: Duration,
}

//! What a snapshot of a runtime has.

pub(crate) mod heavy_hitters;
pub(crate) mod profile_cell;
pub(crate) mod snapshot;
pub(crate) mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use elastin_types::{ActorStats, ActorType, ServerStats};

/// Which actors a snapshot lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// All of them.
    All,
    /// Those of some types: the types that rules name.
    Types {
        /// The types whose actors are listed if they did something in the period.
        busy: BTreeSet<ActorType>,
        /// The types whose actors are listed always. If there is one, a snapshot looks at every actor of the node, and takes
        /// as long as that takes.
        always: BTreeSet<ActorType>,
    },
}

impl Interest {
    /// Whether actors of this type are listed if they did something.
    pub fn covers(&self, kind: ActorType) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { busy, always } => busy.contains(&kind) || always.contains(&kind),
        }
    }

    /// Whether actors of this type are listed even if they did nothing.
    pub fn covers_idle(&self, kind: ActorType) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { always, .. } => always.contains(&kind),
        }
    }

    /// Whether any actors that did nothing are listed.
    pub fn lists_idle(&self) -> bool {
        match self {
            Interest::All => true,
            Interest::Types { always, .. } => !always.is_empty(),
        }
    }
}

/// What a runtime and its actors did since the last snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSnapshot {
    /// How long that is ago.
    pub period: Duration,
    /// The server. The network is not the runtime's to measure: its use is 0 and its capacity unknown here.
    pub server: ServerStats,
    /// How many messages wait in mailboxes.
    pub mailbox_messages: u64,
    /// The actors of interest.
    pub actors: Vec<ActorStats>,
}

/// Measures of the work stage since the runtime started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// How many threads run turns.
    pub workers: usize,
    /// How many activations there are.
    pub activations: u64,
    /// How many turns began out of mailboxes. Inline turns are counted per actor only.
    pub turns: u64,
    /// How many activations wait for a worker at this moment.
    pub queued: usize,
    /// How many turns panicked.
    pub panics: u64,
    /// How many calls and tells were turned away because a mailbox was full. A tell that waits for room counts each time
    /// that it finds none.
    pub overloads: u64,
    /// How often a worker paused because the process had used up its CPU share.
    pub throttled: u64,
}

/// What all actors of one type did since the runtime started, up to the last snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeTotals {
    /// The type's name.
    pub name: String,
    /// How many turns they had, by sampling.
    pub turns: u64,
    /// How long those ran, by sampling.
    pub busy: Duration,
}

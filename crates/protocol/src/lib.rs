//! Elastin's cluster protocols as pure state machines: event in, commands out.
//!
//! ```text
//!                     callers on this node                    peers                 coordination service
//!          Send Settle │ GiveUp    ▲ Complete        Frame, Link* │ ▲ Transmit           ▲ │
//!                      ▼           │                              ▼ │                    │ ▼
//!   ┌───────────┐   ┌──┴───────────┴──────────────────────────────┴─┴───────────┐   ┌────┴─┴─────┐
//!   │ placement │◄──│ Node                                                      │◄──│ membership │
//!   │ and moves │──►│   sessions · routes · calls · hosted actors · directory   │   └────────────┘
//!   └───────────┘   └──┬────────────────────────────────────────────────────────┘   View, MayActUntil
//!   NeedPlacement      │ Activate Deliver Open Freeze Resume Release
//!   Placed             ▼ Activated Bounced Frozen Released Passivated Replied
//!   Move, MoveEnded   the node's runtime
//! ```
//!
//! A process has one [`Node`] (a client is a node that hosts nothing). Nothing here does I/O, reads a clock or rolls dice:
//! a driver feeds [`Event`]s with the time into [`Node::handle`], carries out the [`Command`]s that come back, and calls
//! again with [`Event::Timer`] when [`Node::next_timer`] says. The simulator drives the very same types.
//!
//! # What a driver keeps to
//!
//! 1. Events are handled one at a time, and the commands of one event are carried out in order before the next event is
//!    handled. What is answered later (`Activate`, `Freeze`, `NeedPlacement`, …) only has to be *begun* in order.
//! 2. A [`Bounced`](Event::Bounced) comes back before any other event; a [`Passivated`](Event::Passivated) comes after the
//!    activation has stopped taking mail. Mail that waits in an activation that ends by itself is refused: sent again, it
//!    could come after what its senders have sent since.
//! 3. A caller on this node may put mail straight into an activation's mailbox from `Open` on until `Release`, and only if
//!    none of its earlier [`Send`](Event::Send)s to that actor is still waiting to be handled. (A driver that handles a
//!    `Send` before the sender continues gets this for free.) Everything else comes as `Send`, in each caller's order; so do
//!    all calls of requests ([`Node::begin_request`]). The [`Replied`](Event::Replied) of a turn comes before the
//!    [`Frozen`](Event::Frozen) of its activation, or the outcome is lost to later calls of the same request.
//! 4. Frames of one connection are handed over in order. Connections may break, and frames on them be lost, at any time;
//!    lost frames are transmitted again after `LinkUp`, and a frame that comes twice is known.
//! 5. After the time of the last [`MayActUntil`](Event::MayActUntil) the runtime starts no turn and saves nothing, which it
//!    looks at before each; the node keeps its frames back by itself.
//!
//! # What is promised
//!
//! See `docs/semantics.md`. In short: one activation of an actor at a time; messages from one sender to one receiver arrive
//! in order, also while either is being moved; a planned move loses nothing and runs nothing twice; every call has one
//! outcome, and it is true.

mod authorization;
mod bug;
mod chunking;
mod collections;
mod command;
mod deadlines;
mod dedup_table;
mod directory_entry;
mod event;
mod frame;
#[cfg(test)]
#[path = "../../cluster/tests/golden/mod.rs"]
mod golden;
mod hosted;
mod lease;
mod limits;
pub mod membership;
mod node;
pub mod reminders;
mod route;
mod session;
mod sessions;
mod slots;
pub mod store;
mod timers;
mod view;

#[cfg(feature = "planted-bugs")]
pub use bug::Bug;
pub use command::{Command, MoveError, StateSource};
pub use dedup_table::{MovedRequest, RequestId};
pub use event::{Event, MoveId, PlannedMove};
pub use frame::{Body, DirectoryBody, Entry, Frame, MoveBody, MoveStep};
pub use lease::{KeepAliveId, Lease, LeaseCommand};
pub use limits::{Limits, NodeConfig};
pub use node::{Node, NodeMeasures, TableSizes, TurnedAway};
pub use view::{Member, SLOT_COUNT, Slot, SlotOwner, SlotTable, View};

/// A table with a fixed hash: the same input gives the same order of everything, on every run.
pub(crate) type Map<Key, Value> = hashbrown::HashMap<Key, Value, foldhash::fast::FixedState>;

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
//! A process has one [`Node`] (a client is a node that hosts nothing). This crate does no I/O, reads no clock and draws
//! no random numbers. A driver feeds [`Event`]s with the time into [`Node::handle`] and executes the [`Command`]s that
//! come back. It calls again with [`Event::Timer`] at the time given by [`Node::next_timer`]. The simulator drives the
//! same types.
//!
//! # Driver contract
//!
//! 1. The driver handles one event at a time. It executes the commands of one event in order before it handles the next
//!    event. A command whose result arrives later (`Activate`, `Freeze`, `NeedPlacement`, …) only has to be *started* in
//!    order.
//! 2. A [`Bounced`](Event::Bounced) precedes any other event. A [`Passivated`](Event::Passivated) follows the point at
//!    which the activation stopped accepting messages. Messages queued in an activation that ends by itself are rejected:
//!    resent, they could arrive after later messages of the same senders.
//! 3. A caller on this node may enqueue directly into an activation's mailbox between `Open` and `Release`, provided none
//!    of its earlier [`Send`](Event::Send)s to that actor is still unhandled. (A driver that handles a `Send` before the
//!    sender continues satisfies this for free.) Every other message goes through `Send`, in each caller's order, and so
//!    do all calls of requests ([`Node::begin_request`]). The [`Replied`](Event::Replied) of a turn precedes the
//!    [`Frozen`](Event::Frozen) of its activation; otherwise later calls of the same request miss the outcome.
//! 4. The driver passes on the frames of one connection in order. Connections may break and lose frames at any time. The
//!    node retransmits lost frames after `LinkUp` and discards duplicates.
//! 5. After the time of the last [`MayActUntil`](Event::MayActUntil) the runtime starts no turn and saves nothing; it
//!    checks this before each turn and each save. The node holds back its own frames.
//!
//! # Guarantees
//!
//! `docs/semantics.md` has the details. An actor has at most one activation at a time. Messages from one sender to one
//! receiver arrive in order, even while either is being moved. A planned move loses no message and runs none twice. Every
//! call has exactly one outcome, and that outcome is true.

mod bug;
mod collections;
mod command;
mod event;
mod frame;
mod lease;
mod limits;
pub mod membership;
mod node;
pub mod reminders;
pub mod store;
mod view;

#[cfg(feature = "planted-bugs")]
pub use bug::Bug;
pub use command::{Command, MoveError, StateSource};
pub use event::{Event, MoveId, PlannedMove};
pub use frame::{Body, DirectoryBody, Entry, Frame, MoveBody, MoveStep};
pub use lease::{KeepAliveId, Lease, LeaseCommand};
pub use limits::{Limits, NodeConfig};
pub use node::{MovedRequest, Node, NodeMeasures, Rejections, RequestId, TableSizes};
pub use view::{Member, SLOT_COUNT, Slot, SlotOwner, SlotTable, View};

/// A hash map with a fixed seed: equal inputs iterate in the same order on every run.
pub(crate) type Map<Key, Value> = hashbrown::HashMap<Key, Value, foldhash::fast::FixedState>;

//! Why something was not done.

use elastin_types::{ActorId, NodeId, Resource, Schema};
use serde::{Deserialize, Serialize};

/// Why a decision, or a server as a candidate for it, was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// A rule pins the actor, or one that moves along with it.
    Pinned(ActorId),
    /// Both ends of a relation are pinned.
    BothPinned,
    /// Both ends of a relation have servers of their own.
    BothReserved,
    /// One end of a relation is pinned, the other has a server of its own.
    PinnedAndReserved,
    /// The actor has a server of its own.
    Reserved(ActorId),
    /// The actor has been where it is for less than a period.
    CameRecently,
    /// The actor is already on the move.
    OnTheMove,
    /// The actor is no longer there.
    NotHere,
    /// Another decision for the same actor has a higher priority.
    Outranked,
    /// Another server is better.
    Worse,
    /// The server would use more of the resource than it may.
    NoRoom {
        /// The resource.
        resource: Resource,
        /// What it would use, in percent.
        percent: f64,
        /// What it may use, in percent.
        limit: f64,
    },
    /// The server is dedicated to this actor.
    ServerReserved(ActorId),
    /// The server is being emptied.
    Draining,
    /// A rule keeps the actor apart from this one, which is there.
    KeptApart(ActorId),
    /// A rule keeps the actor apart from actors of a type that is there.
    KeptApartFromType,
    /// The server refused the actor when it was last asked.
    RefusedBefore,
    /// No server can take the actor.
    NoServer,
    /// There was no answer in time from this node.
    NoAnswer(NodeId),
    /// There was no answer in time from the node that hosts the other actor.
    HostUnknown,
    /// A new server has been asked for and is not there yet.
    AwaitingServer,
    /// The server is still being emptied for it.
    AwaitingRoom,
    /// The values were measured while actors came and went.
    Unsettled,
    /// The server moves as many actors in this period as it may.
    EnoughMoves,
    /// The cluster has as many servers as it may have.
    AtMaximum,
    /// The cluster's size was changed within the last period.
    SizeChangedRecently,
    /// More servers would not help.
    SizeDoesNotHelp,
    /// The other managers did not agree.
    VotedDown {
        /// How many agreed, the asking one included.
        agreed: u32,
        /// How many answered, the asking one included.
        answered: u32,
    },
}

impl Refusal {
    /// The reason for people, as a clause that follows "but".
    pub fn explain(&self, schema: &Schema) -> String {
        match self {
            Refusal::Pinned(actor) => format!("{} is pinned", schema.show(actor)),
            Refusal::BothPinned => "both are pinned".into(),
            Refusal::PinnedAndReserved => "one is pinned and the other has a server of its own".into(),
            Refusal::BothReserved => "both have servers of their own".into(),
            Refusal::Reserved(actor) => format!("{} has a server of its own", schema.show(actor)),
            Refusal::CameRecently => "it came less than a period ago".into(),
            Refusal::OnTheMove => "it is already on the move".into(),
            Refusal::NotHere => "it is no longer there".into(),
            Refusal::Outranked => "another decision for it has a higher priority".into(),
            Refusal::Worse => "another server is better".into(),
            Refusal::NoRoom {
                resource,
                percent,
                limit,
            } => format!("{resource} there would be at {percent:.1} % of at most {limit:.0} %"),
            Refusal::ServerReserved(actor) => format!("that server is reserved for {}", schema.show(actor)),
            Refusal::Draining => "that server is being emptied".into(),
            Refusal::KeptApart(actor) => format!("it is kept apart from {}", schema.show(actor)),
            Refusal::KeptApartFromType => "it is kept apart from actors there".into(),
            Refusal::RefusedBefore => "that server refused it a period ago".into(),
            Refusal::NoServer => "no server can take it".into(),
            Refusal::NoAnswer(node) => format!("{node} did not answer in time"),
            Refusal::HostUnknown => "the other actor's host did not answer in time".into(),
            Refusal::AwaitingServer => "the new server is not there yet".into(),
            Refusal::AwaitingRoom => "the server is still being emptied".into(),
            Refusal::Unsettled => "actors came or left while this was measured".into(),
            Refusal::EnoughMoves => "as many actors move as may in one period".into(),
            Refusal::AtMaximum => "the cluster has as many servers as it may have".into(),
            Refusal::SizeChangedRecently => "the number of servers changed within the last period".into(),
            Refusal::SizeDoesNotHelp => "more servers would not help".into(),
            Refusal::VotedDown { agreed, answered } => format!("only {agreed} of {answered} managers agreed"),
        }
    }
}

//! Reasons for refusing a change.

use elastin_types::{ActorId, NodeId, Resource, Schema};
use serde::{Deserialize, Serialize};

/// Why a decision, or a server as a candidate for it, was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// A rule pins the actor, or one that would move with it.
    Pinned(ActorId),
    /// Both ends of a relation are pinned.
    BothPinned,
    /// Both ends of a relation have dedicated servers.
    BothReserved,
    /// One end of a relation is pinned, the other has a dedicated server.
    PinnedAndReserved,
    /// The actor has a dedicated server.
    Reserved(ActorId),
    /// The actor arrived on its server less than a period ago.
    CameRecently,
    /// The actor is already moving.
    OnTheMove,
    /// The actor is no longer on the server.
    NotHere,
    /// Another decision for the same actor has a higher priority.
    Outranked,
    /// Another server is better.
    Worse,
    /// The server would exceed its limit for the resource.
    NoRoom {
        /// The resource.
        resource: Resource,
        /// The resulting use, in percent.
        percent: f64,
        /// The limit, in percent.
        limit: f64,
    },
    /// The server is dedicated to this actor.
    ServerReserved(ActorId),
    /// The server is being drained.
    Draining,
    /// A rule separates the actor from this one, which is on the server.
    KeptApart(ActorId),
    /// A rule separates the actor from actors of a type on the server.
    KeptApartFromType,
    /// The server refused the actor in the previous period.
    RefusedBefore,
    /// No server can take the actor.
    NoServer,
    /// The node did not answer in time.
    NoAnswer(NodeId),
    /// The node hosting the other actor did not answer in time.
    HostUnknown,
    /// A new server was requested and has not joined yet.
    AwaitingServer,
    /// The server is still being emptied for the actor.
    AwaitingRoom,
    /// Actors moved while the values were measured.
    Unsettled,
    /// The server has reached its limit of moves in this period.
    EnoughMoves,
    /// The cluster has its maximum number of servers.
    AtMaximum,
    /// The cluster's size changed within the last period.
    SizeChangedRecently,
    /// Adding servers would not help.
    SizeDoesNotHelp,
    /// The other global managers did not agree.
    VotedDown {
        /// Managers that agreed, the requester included.
        agreed: u32,
        /// Managers that answered, the requester included.
        answered: u32,
    },
}

impl Refusal {
    /// The reason as a clause that follows "but".
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

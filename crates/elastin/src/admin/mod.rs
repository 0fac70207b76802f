//! Admin requests of operators. They are plain data: the command line, the embedded cluster and tests send them, and
//! every node serves them over the cluster's own connections.

mod retry;
mod service;

pub(crate) use retry::retry_move;

pub(crate) use service::{AdminService, AdminTask, Moves, Requester, answer, move_result};

use elastin_protocol::MoveError;
use elastin_types::{ActorId, NodeId};
use serde::{Deserialize, Serialize};

use crate::ServerStatus;

/// A request of an operator to a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Move an actor. Sent to the node that owns the actor's directory slot. Answered by [`AdminReply::Done`].
    Move {
        /// The actor.
        actor: ActorId,
        /// The server to move it to.
        to: NodeId,
    },
    /// Drain the receiving server and leave. Answered by [`AdminReply::Done`] when the drain has begun.
    Drain,
    /// Report the status of all servers. Sent to the node that runs the global elasticity manager. Answered by
    /// [`AdminReply::Servers`].
    Status,
}

/// The answer to an [`AdminRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AdminReply {
    /// The request was carried out.
    Done,
    /// The servers, as they last reported.
    Servers(Vec<ServerStatus>),
}

/// The reason why an [`AdminRequest`] failed. Nothing was changed, except perhaps after [`AdminError::NoAnswer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AdminError {
    /// There is no server of this name.
    #[error("there is no server called `{0}`")]
    NoSuchServer(String),
    /// The actor is active nowhere.
    #[error("the actor is active nowhere")]
    NotActive,
    /// The move was refused or failed: the actor has not move_result.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The receiving node is not the one that serves such a request.
    #[error("the request reached a node that does not serve it: try again")]
    WrongNode,
    /// No answer arrived in time, or the serving node is gone. The request may have been carried out.
    #[error("no answer arrived in time; the request may have been carried out")]
    NoAnswer,
}

/// The outcome of a request.
pub type AdminResult = Result<AdminReply, AdminError>;

/// A frame of class `Admin`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AdminFrame {
    /// A request.
    Ask {
        /// The sender's id of the request.
        id: u64,
        /// The request.
        request: AdminRequest,
    },
    /// To the host of an actor: move it.
    MoveHere {
        /// The sender's id of the request.
        id: u64,
        /// The actor.
        actor: ActorId,
        /// The target.
        to: NodeId,
    },
    /// The answer to both.
    Answer {
        /// The request's id.
        id: u64,
        /// The outcome.
        result: AdminResult,
    },
}

//! What operators can ask of a cluster. The requests are plain data: the command line, the embedded cluster and tests make
//! them, and every node serves them, over the cluster's own connections.

mod retry;
mod service;

pub(crate) use retry::until_arrived;

pub(crate) use service::{AdminService, AdminTask, Asker, Moves, answer, moved};

use elastin_protocol::MoveError;
use elastin_types::{ActorId, NodeId};
use serde::{Deserialize, Serialize};

use crate::ServerStatus;

/// Something that an operator asks of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Move an actor. Put to the owner of the actor's place in the directory. Answered by [`AdminReply::Done`].
    Move {
        /// The actor.
        actor: ActorId,
        /// The server that it shall go to.
        to: NodeId,
    },
    /// Empty yourself and leave. Put to the server that shall. Answered by [`AdminReply::Done`] when it has begun.
    Drain,
    /// Say how the servers are. Put to the node that runs the global elasticity manager. Answered by
    /// [`AdminReply::Servers`].
    Status,
}

/// The answer to an [`AdminRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AdminReply {
    /// It is done.
    Done,
    /// The servers, as they last reported.
    Servers(Vec<ServerStatus>),
}

/// Why an [`AdminRequest`] was not carried out. Nothing was changed, except perhaps after [`AdminError::NoAnswer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AdminError {
    /// There is no server of this name.
    #[error("there is no server called `{0}`")]
    NoSuchServer(String),
    /// The actor is active nowhere.
    #[error("the actor is active nowhere")]
    NotActive,
    /// The move was refused or failed: the actor is where it was.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The node that was asked does not do such things.
    #[error("the node that was asked is not the one that does this: try again")]
    WrongNode,
    /// No answer came in time, or the node that was to do it is gone. It may have been done.
    #[error("no answer came")]
    NoAnswer,
}

/// The outcome of a request.
pub type AdminResult = Result<AdminReply, AdminError>;

/// A frame of class `Admin`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AdminFrame {
    /// Somebody asks.
    Ask {
        /// Names the request for whoever made it.
        request: u64,
        /// What is asked.
        what: AdminRequest,
    },
    /// To the host of an actor: move it.
    MoveHere {
        /// Names the request for whoever made it.
        request: u64,
        /// The actor.
        actor: ActorId,
        /// Where to.
        to: NodeId,
    },
    /// The answer to both.
    Answer {
        /// The request.
        request: u64,
        /// How it ended.
        result: AdminResult,
    },
}

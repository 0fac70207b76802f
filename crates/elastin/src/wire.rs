//! What nodes and the supervisor say to each other beside the protocol: elasticity and administration.

use elastin_control::{ControlMessage, Decision};
use elastin_protocol::MoveError;
use elastin_types::{ActorId, NodeId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A frame of class `Control`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ControlFrame {
    /// From one elasticity manager to another.
    Message(ControlMessage),
    /// To the directory's owner: pass this on to the local manager where the actor is.
    ToHost {
        /// The actor.
        actor: ActorId,
        /// What to pass on.
        message: ControlMessage,
    },
    /// The same, passed on.
    Relayed {
        /// The manager that it comes from.
        from: NodeId,
        /// What was passed on.
        message: ControlMessage,
    },
    /// To the supervisor: keep this record.
    Record(Box<Decision>),
    /// To the supervisor: this server is empty and may go.
    Leave,
}

/// A frame of class `Admin`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AdminFrame {
    /// Move an actor that is on your server.
    Move {
        /// Names the request for whoever made it.
        request: u64,
        /// The actor.
        actor: ActorId,
        /// Where to.
        to: NodeId,
    },
    /// How the move ended.
    MoveEnded {
        /// The request.
        request: u64,
        /// Why the actor stayed where it was, if it did.
        result: Result<(), MoveError>,
    },
}

/// Encodes a frame.
pub(crate) fn encode(frame: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(frame).expect("frames are plain data")
}

/// Decodes a frame; one that can't be decoded comes from another version and is dropped with a word in the log.
pub(crate) fn decode<T: DeserializeOwned>(from: NodeId, payload: &[u8]) -> Option<T> {
    postcard::from_bytes(payload)
        .inspect_err(|error| tracing::warn!(%from, %error, "a frame could not be decoded"))
        .ok()
}

//! What nodes say to each other about elasticity, beside the protocol.

use elastin_control::{ControlMessage, Decision};
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
    /// To the node of the global manager: keep this record.
    Record(Box<Decision>),
    /// To the supervisor: this server is empty and may go.
    Leave,
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

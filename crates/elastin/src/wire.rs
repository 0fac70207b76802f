//! Frames between the elasticity managers of different nodes.

use elastin_control::{ControlMessage, Decision};
use elastin_types::{ActorId, NodeId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A frame of class `Control`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ControlFrame {
    /// From one elasticity manager to another.
    Message(ControlMessage),
    /// To the owner of the actor's directory slot: relay a message to the local manager of the actor's host.
    ToHost {
        /// The actor.
        actor: ActorId,
        /// The message to relay.
        message: ControlMessage,
    },
    /// A relayed message.
    Relayed {
        /// The node of the manager that sent it.
        from: NodeId,
        /// The message.
        message: ControlMessage,
    },
    /// To the node of the global manager: record this decision.
    Record(Box<Decision>),
    /// To the supervisor: this server is drained and may be stopped.
    Leave,
}

/// Encodes a frame.
pub(crate) fn encode(frame: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(frame).expect("frames are plain data")
}

/// Decodes a frame. A frame that can't be decoded comes from another version; it is logged and dropped.
pub(crate) fn decode<T: DeserializeOwned>(from: NodeId, payload: &[u8]) -> Option<T> {
    postcard::from_bytes(payload)
        .inspect_err(|error| tracing::warn!(%from, %error, "dropped a frame that can't be decoded"))
        .ok()
}

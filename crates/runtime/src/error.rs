//! Errors of requests to the runtime.

use elastin_actor::StateCodecError;
use elastin_types::{ActivationEpoch, SchemaError};

use crate::InboundMessage;

/// Why a runtime could not be built. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The actor types conflict with each other.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A thread could not be started.
    #[error("could not start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The target is not active here with that epoch. The message is returned unchanged: send it to the actor's node.
#[derive(Debug)]
pub struct Undeliverable(pub Box<InboundMessage>);

/// Why an actor could not be activated. Nothing was changed; [`Runtime::activate`](crate::Runtime::activate) returns
/// the messages that came along.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// No actor type with this id is registered on this node. Retrying does not help.
    #[error("no actor type with id {0:08x} is registered on this node")]
    UnknownType(u32),
    /// The actor is already active here, with this epoch.
    #[error("the actor is already active on this node with epoch {0}")]
    AlreadyActive(ActivationEpoch),
    /// The state could not be decoded. Retrying with the same state does not help.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

/// Why an activation could not be frozen. It continues as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// The actor is not active here with that epoch.
    #[error("the actor is not active on this node with that epoch")]
    NotActive,
    /// The activation is being frozen or is already frozen.
    #[error("the actor is already frozen")]
    AlreadyFrozen,
    /// The running turn did not end before the deadline, or the freeze was cancelled. Retry later.
    #[error("the actor's turn did not end before the freeze deadline")]
    Busy,
    /// The state could not be encoded. Retrying does not help until the state changes.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

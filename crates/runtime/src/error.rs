//! How a request to the runtime can fail.

use elastin_actor::StateCodecError;
use elastin_types::{ActivationEpoch, SchemaError};

use crate::InboundMessage;

/// Why a runtime could not be built. Nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The actor types don't go together.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// The target is not active here with that epoch. The mail is as it was: send it to where the actor is.
#[derive(Debug)]
pub struct Undeliverable(pub Box<InboundMessage>);

/// Why an actor could not be activated. It is not active here because of this call; nothing was changed, and the mail that
/// came along is given back by [`Runtime::activate`](crate::Runtime::activate).
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// No actor type with this id is registered on this node. Trying again does not help.
    #[error("no actor type with the id {0:08x} is registered here")]
    UnknownType(u32),
    /// The actor is active here already, with this epoch.
    #[error("the actor is active here already, with epoch {0}")]
    AlreadyActive(ActivationEpoch),
    /// The state could not be decoded. Trying again with the same state does not help.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

/// Why an activation could not be frozen. It goes on as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// The actor is not active here with that epoch.
    #[error("the actor is not active here with that epoch")]
    NotActive,
    /// The activation is being frozen or is frozen already.
    #[error("the actor is frozen already")]
    AlreadyFrozen,
    /// The turn that was running did not end in time. Try again later.
    #[error("the actor's turn did not end in time")]
    ActiveSet,
    /// The state could not be encoded. Trying again does not help while the state is like that.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

//! Persistence modes of actor state.

use crate::codec::StateCodecError;

/// Persistence mode of an actor type: `#[actor(persist)]` and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Never saved: a crash or passivation loses the state.
    Never,
    /// Saved after each turn that may have changed it, before the reply is sent. State that a caller has seen survives.
    EachTurn,
    /// Saved when a handler calls [`Ctx::save`](crate::Ctx::save).
    OnRequest,
    /// Saved before the activation ends in an orderly way: it was idle, or its node shuts down. A crash loses all
    /// changes since the last such save.
    AtPassivation,
}

impl Persist {
    /// Whether the state is kept in the store, so that an activation has to claim it.
    pub const fn is_kept(self) -> bool {
        !matches!(self, Persist::Never)
    }
}

/// A save failed. The previously saved state is unchanged unless a variant states otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    /// A later activation has claimed the actor: this one is fenced, and its turns have no effect any more.
    #[error("a later activation of the actor has saved its state")]
    Superseded,
    /// The store did not reply, or rejected the save. The state may have been saved nevertheless. Retry later.
    #[error("the store can't take the state: {0}")]
    Unavailable(String),
    /// The state could not be encoded. Retrying the same state fails again.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

/// Called once with the result of a save.
pub type SaveDone = Box<dyn FnOnce(Result<(), SaveError>) + Send>;

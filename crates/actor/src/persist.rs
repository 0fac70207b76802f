//! When an actor's state is saved.

use crate::codec::StateCodecError;

/// When an actor's state is saved: `#[actor(persist)]` and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Never: a crash or passivation loses it.
    Never,
    /// After each turn that may have changed it, before the reply leaves. What a caller was told survives.
    EachTurn,
    /// When a handler asks for it with [`Ctx::save`](crate::Ctx::save).
    OnRequest,
    /// Before the activation ends by itself: it was idle, or its node shuts down. A crash loses what came after the last
    /// such moment.
    AtPassivation,
}

impl Persist {
    /// Whether there is anything in the store, so that an activation has to claim it.
    pub const fn is_kept(self) -> bool {
        !matches!(self, Persist::Never)
    }
}

/// State could not be saved. What was saved before stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    /// A later activation has claimed the actor: this one is over, and none of its turns matters any longer.
    #[error("a later activation of the actor has saved its state")]
    Superseded,
    /// The store did not answer, or said no. The state may have been saved all the same. Try again later.
    #[error("the store can't take the state: {0}")]
    Unavailable(String),
    /// The state could not be encoded. Trying again does not help while it is like that.
    #[error(transparent)]
    State(#[from] StateCodecError),
}

/// Called once with how a save ended.
pub type SaveDone = Box<dyn FnOnce(Result<(), SaveError>) + Send>;

//! How a call to a handler that returns a `Result` can fail.

use elastin_types::CallError;

/// Why a call to a handler that returns `Result<T, E>` gave no `T`: the handler said so, or there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed<E> {
    /// The handler ran and returned this error.
    #[error(transparent)]
    Application(E),
    /// There is no reply; the error tells what may have happened and whether to try again.
    #[error(transparent)]
    Call(CallError),
}

impl<E> CallFailed<E> {
    /// The handler's own error, if that is what it is.
    pub fn application(self) -> Option<E> {
        match self {
            CallFailed::Application(error) => Some(error),
            CallFailed::Call(_) => None,
        }
    }

    /// Why there is no reply, if that is what it is.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            CallFailed::Application(_) => None,
            CallFailed::Call(error) => Some(error),
        }
    }
}

impl<E> From<CallError> for CallFailed<E> {
    fn from(error: CallError) -> Self {
        CallFailed::Call(error)
    }
}

/// Joins the two ways in which a call to a handler that returns a `Result` can fail.
pub fn flatten<T, E>(outcome: Result<Result<T, E>, CallError>) -> Result<T, CallFailed<E>> {
    match outcome {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(CallFailed::Application(error)),
        Err(error) => Err(CallFailed::Call(error)),
    }
}

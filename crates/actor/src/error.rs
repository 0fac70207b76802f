//! The error of a call to a handler that returns a `Result`.

use elastin_types::CallError;

/// The error of a call to a handler that returns `Result<T, E>`: the handler's own error, or a failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed<E> {
    /// The handler ran and returned this error.
    #[error(transparent)]
    Application(E),
    /// There is no reply; the error states what may have happened and whether a retry is safe.
    #[error(transparent)]
    Call(CallError),
}

impl<E> CallFailed<E> {
    /// The handler's own error, if it returned one.
    pub fn application(self) -> Option<E> {
        match self {
            CallFailed::Application(error) => Some(error),
            CallFailed::Call(_) => None,
        }
    }

    /// The call's error, if there is no reply.
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

/// Merges the errors of the call and of the handler into one.
pub fn flatten<T, E>(outcome: Result<Result<T, E>, CallError>) -> Result<T, CallFailed<E>> {
    match outcome {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(CallFailed::Application(error)),
        Err(error) => Err(CallFailed::Call(error)),
    }
}

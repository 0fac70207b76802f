//! Retries of move requests while an actor is in flight or a new server is not known everywhere yet.

use std::time::Duration;

use elastin_protocol::MoveError;
use tokio::time::Instant;

use super::{AdminError, AdminResult};

/// The time limit of retries: far longer than a move takes to complete, or a new server to become known.
const RETRY_TIME_MAX: Duration = Duration::from_secs(5);
/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Retries a move request while its failure is transient:
///
/// - the host that the directory names has not received the actor of an earlier move yet,
/// - the actor's directory slot is being transferred, so no node can locate the actor, or
/// - a node on the path does not know the target yet.
pub(crate) async fn retry_move<F>(request: impl Fn() -> F) -> AdminResult
where
    F: Future<Output = AdminResult>,
{
    let began = Instant::now();
    loop {
        match request().await {
            Err(AdminError::Move(MoveError::NotHere | MoveError::TargetTooNew) | AdminError::WrongNode)
                if began.elapsed() < RETRY_TIME_MAX =>
            {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::admin::AdminReply;

    /// Requests that fail with `error` until attempt number `attempt`, which ends with `result`; how many attempts were
    /// made.
    async fn attempts(error: MoveError, attempt: u32, result: AdminResult) -> (AdminResult, u32) {
        let made = Cell::new(0);
        let answer = retry_move(|| {
            made.set(made.get() + 1);
            let succeeds = made.get() >= attempt;
            let result = result.clone();
            async move { if succeeds { result } else { Err(AdminError::Move(error)) } }
        });
        (answer.await, made.get())
    }

    #[tokio::test(start_paused = true)]
    async fn only_transient_failures_are_retried() {
        let done = Ok(AdminReply::Done);
        for transient in [MoveError::NotHere, MoveError::TargetTooNew] {
            assert_eq!(attempts(transient, 3, done.clone()).await, (done.clone(), 3));
        }
        let refused = Err(AdminError::Move(MoveError::TargetUnfit));
        assert_eq!(attempts(MoveError::NotHere, 1, refused.clone()).await, (refused, 1));
        let (answer, made) = attempts(MoveError::NotHere, u32::MAX, done).await;
        assert_eq!(answer, Err(AdminError::Move(MoveError::NotHere)), "retries end");
        assert!(made > 1);
    }
}

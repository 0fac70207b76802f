//! RetryLimit with an actor that is on its way, and with a server that is new.

use std::time::Duration;

use elastin_protocol::MoveError;
use tokio::time::Instant;

use super::{AdminError, AdminResult};

/// How long an actor that has just moved may take to arrive, and others may take to hear of a new server; far longer than
/// they do.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long to wait between two tries.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Asks for a move again while the server that the directory names does not have the actor yet: a move that was decided a
/// moment ago is still being finished there. Also while nobody can say where it is, because the actor's part of the directory
/// is on its way to another server, or because a server on the way has not heard of the target yet.
pub(crate) async fn until_arrived<F>(ask: impl Fn() -> F) -> AdminResult
where
    F: Future<Output = AdminResult>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Err(AdminError::Move(MoveError::NotHere | MoveError::TargetTooNew) | AdminError::WrongNode)
                if began.elapsed() < ARRIVAL_TIME_MAX =>
            {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
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

    async fn ask_of_one_who_arrives_at(try_number: u32, then: AdminResult) -> (AdminResult, u32) {
        ask_of_one_who_says(MoveError::NotHere, try_number, then).await
    }

    async fn ask_of_one_who_says(error: MoveError, try_number: u32, then: AdminResult) -> (AdminResult, u32) {
        let tries = Cell::new(0);
        let answer = until_arrived(|| {
            tries.set(tries.get() + 1);
            let arrived = tries.get() >= try_number;
            let then = then.clone();
            async move { if arrived { then } else { Err(AdminError::Move(error)) } }
        });
        (answer.await, tries.get())
    }

    #[tokio::test(start_paused = true)]
    async fn an_actor_that_arrives_is_waited_for_and_nothing_else_is() {
        let done = Ok(AdminReply::Done);
        assert_eq!(ask_of_one_who_arrives_at(3, done.clone()).await, (done.clone(), 3));
        let too_new = ask_of_one_who_says(MoveError::TargetTooNew, 3, done.clone()).await;
        assert_eq!(too_new, (done.clone(), 3), "whoever is asked hears of the target");
        let refused = Err(AdminError::Move(MoveError::TargetUnfit));
        assert_eq!(ask_of_one_who_arrives_at(1, refused.clone()).await, (refused, 1));
        let (answer, tries) = ask_of_one_who_arrives_at(u32::MAX, done).await;
        assert_eq!(answer, Err(AdminError::Move(MoveError::NotHere)), "not for ever");
        assert!(tries > 1);
    }
}

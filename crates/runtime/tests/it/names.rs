//! Handlers and their parameters may have any name, including those that the macros use.

use elastin::{Actor, Ctx, handlers};
use elastin_runtime::Runtime;
use serde::{Deserialize, Serialize};

#[derive(Actor, Serialize, Deserialize, Default)]
struct Namesake {}

#[handlers]
#[allow(clippy::too_many_arguments)]
impl Namesake {
    async fn later(
        &mut self,
        ctx: &Ctx,
        instance: u64,
        state: u64,
        reply: u64,
        message: u64,
        outcome: u64,
        actor: u64,
        call: u64,
        hook: u64,
    ) -> u64 {
        assert!(ctx.deadline().is_none());
        instance + state + reply + message + outcome + actor + call + hook
    }

    fn at_once(&mut self, instance: u64, state: u64, reply: u64, message: u64, outcome: u64) -> u64 {
        instance + state + reply + message + outcome
    }

    async fn decode(&self, r#type: u64, arguments: u64) -> u64 {
        r#type + arguments
    }
}

#[tokio::test]
async fn parameters_may_have_names_that_the_macros_use() {
    let runtime = Runtime::builder().register::<Namesake>().build().unwrap();
    let namesake = runtime.client().actor::<Namesake>(1);
    assert_eq!(namesake.later(1, 2, 3, 4, 5, 6, 7, 8).await, Ok(36));
    assert_eq!(namesake.at_once(1, 2, 3, 4, 5).await, Ok(15));
    assert_eq!(namesake.decode(1, 2).await, Ok(3));
}

//! Context that is passed from caller to callee: request values, deadlines, caller.

use std::time::Duration;

use crate::common::within;
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use elastin_types::{Caller, NodeId};
use serde::{Deserialize, Serialize};

/// The context that a handler sees in its turn: user, page, whether there is a deadline, caller.
type Seen = (Option<String>, Option<String>, bool, String);

fn seen(ctx: &Ctx) -> Seen {
    let caller = match ctx.caller() {
        Caller::Client(node) => node.to_string(),
        Caller::Actor(actor) => actor.key.to_string(),
    };
    (
        ctx.request_value("user"),
        ctx.request_value("page"),
        ctx.deadline().is_some(),
        caller,
    )
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Callee {}

#[handlers]
impl Callee {
    fn observe(&self, ctx: &Ctx) -> Seen {
        seen(ctx)
    }

    async fn observe_later(&self, ctx: &Ctx) -> Seen {
        tokio::task::yield_now().await;
        seen(ctx)
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Outer {}

#[handlers]
impl Outer {
    /// Calls with more values and a deadline, and observes its own context before and after.
    async fn around(&mut self, ctx: &Ctx, later: bool) -> (Seen, Seen, Seen) {
        let before = seen(ctx);
        let callee: Ref<Callee> = ctx.actor("callee");
        let inner = match later {
            true => {
                let call = callee.observe_later().with_value("page", "7").with_value("user", "eve");
                call.deadline(Duration::from_secs(60)).await
            }
            false => {
                let call = callee.observe().with_value("page", "7").with_value("user", "eve");
                call.deadline(Duration::from_secs(60)).await
            }
        };
        (before, inner.unwrap(), seen(ctx))
    }
}

#[tokio::test]
async fn values_and_deadlines_reach_callees_but_not_callers() {
    let runtime = Runtime::builder()
        .register::<Callee>()
        .register::<Outer>()
        .node(NodeId(4))
        .workers(1)
        .build()
        .unwrap();
    for later in [false, true] {
        let outer: Ref<Outer> = runtime.client().actor("outer");
        let call = outer.around(later).with_value("user", "ada");
        let (before, inner, after) = within("the reply", call.into_future()).await.unwrap();
        let own = (Some("ada".into()), None, false, "n4".into());
        assert_eq!(before, own);
        assert_eq!(inner, (Some("eve".into()), Some("7".into()), true, "outer".into()));
        assert_eq!(after, own, "with later = {later}");
        // The next turn of the same actors has none of it.
        let callee: Ref<Callee> = runtime.client().actor("callee");
        assert_eq!(callee.observe().await, Ok((None, None, false, "n4".into())));
    }
}

#[tokio::test]
async fn a_decoded_reference_can_be_bound() {
    let runtime = Runtime::builder().register::<Callee>().workers(1).build().unwrap();
    let bound: Ref<Callee> = runtime.client().actor("callee");
    let decoded: Ref<Callee> = Ref::from_id(bound.id().clone()).unwrap();
    assert_eq!(decoded, bound);
    assert!(runtime.client().bind(&decoded).observe().await.is_ok());
    assert!(Ref::<Outer>::from_id(bound.id().clone()).is_none());
}

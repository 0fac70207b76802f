//! What flows from caller to callee, and what does not.

extern crate elastin_actor as elastin;

mod common;

use std::time::Duration;

use common::within;
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use elastin_types::{Caller, NodeId};
use serde::{Deserialize, Serialize};

/// What a handler sees of its own turn.
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
    fn look(&self, ctx: &Ctx) -> Seen {
        seen(ctx)
    }

    async fn look_later(&self, ctx: &Ctx) -> Seen {
        tokio::task::yield_now().await;
        seen(ctx)
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Outer {}

#[handlers]
impl Outer {
    /// Calls with more values and a deadline, and looks at its own turn before and after.
    async fn around(&mut self, ctx: &Ctx, later: bool) -> (Seen, Seen, Seen) {
        let before = seen(ctx);
        let callee: Ref<Callee> = ctx.actor("callee");
        let inner = match later {
            true => {
                let call = callee.look_later().with_value("page", "7").with_value("user", "eve");
                call.deadline(Duration::from_secs(60)).await
            }
            false => {
                let call = callee.look().with_value("page", "7").with_value("user", "eve");
                call.deadline(Duration::from_secs(60)).await
            }
        };
        (before, inner.unwrap(), seen(ctx))
    }
}

#[tokio::test]
async fn values_and_deadlines_flow_down_and_never_up() {
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
        // The next turn of the same actors has nothing of it.
        let callee: Ref<Callee> = runtime.client().actor("callee");
        assert_eq!(callee.look().await, Ok((None, None, false, "n4".into())));
    }
}

#[tokio::test]
async fn a_decoded_reference_can_be_bound() {
    let runtime = Runtime::builder().register::<Callee>().workers(1).build().unwrap();
    let bound: Ref<Callee> = runtime.client().actor("callee");
    let decoded: Ref<Callee> = Ref::from_id(bound.id().clone()).unwrap();
    assert_eq!(decoded, bound);
    assert!(runtime.client().bind(&decoded).look().await.is_ok());
    assert!(Ref::<Outer>::from_id(bound.id().clone()).is_none());
}

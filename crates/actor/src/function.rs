//! A function of an actor type: the static description of one handler.

use std::future::Future;

use elastin_types::{CallError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;
use crate::instance::Instance;
use crate::shared_instance::{Held, SharedInstance};

/// One handler of an actor type. `#[handlers]` generates a type for each handler that implements this.
pub trait Function: 'static {
    /// The handler's actor type.
    type Actor: Actor;
    /// The parameters as a tuple, without the context.
    type Arguments: Serialize + DeserializeOwned + Send + 'static;
    /// The handler's return type.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The result of a call: the reply, or an error.
    type Output;
    /// The future's hold on the actor: a [`SharedInstance`] if the handler is [`SHARED`](Function::SHARED) and
    /// [may wait](Function::MAY_WAIT), else the boxed instance.
    type Held: Held<Self::Actor>;

    /// The handler's name.
    const NAME: &'static str;
    /// The id derived from the name.
    const METHOD: Method = Method::of(Self::NAME);
    /// Whether it takes `&self`, so that it can interleave with other such handlers.
    const SHARED: bool;
    /// Whether it only reads the actor.
    const READ_ONLY: bool;
    /// Whether it may be suspended: it is an `async fn`.
    const MAY_WAIT: bool;

    /// Runs a handler that never waits and so needs no future, on an exclusive instance.
    #[inline]
    fn run_plain(state: &mut Self::Actor, arguments: Self::Arguments) -> Self::Reply {
        Self::read_plain(state, arguments)
    }

    /// Runs a handler with `&self` that never waits.
    fn read_plain(state: &Self::Actor, arguments: Self::Arguments) -> Self::Reply {
        let _ = (state, arguments);
        unreachable!("this handler takes `&mut self`, or runs as a future")
    }

    /// Runs a handler that may wait. Resolves to the hold on the actor and the reply.
    fn run(
        held: Self::Held,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Self::Held, Self::Reply)> + Send + 'static {
        drop((held, arguments));
        async { unreachable!("this handler never waits") }
    }

    /// Makes the instance shareable. Only called for handlers that are shared and may wait.
    fn share(instance: Box<Instance<Self::Actor>>) -> SharedInstance {
        drop(instance);
        unreachable!("an exclusive handler does not share its actor")
    }

    /// Converts the outcome of a call into its result type.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

/// Whether all functions of an actor type have different ids, which are hashes of their names.
pub const fn are_distinct(methods: &[Method]) -> bool {
    let mut one = 0;
    while one < methods.len() {
        let mut other = one + 1;
        while other < methods.len() {
            if methods[one].number() == methods[other].number() {
                return false;
            }
            other += 1;
        }
        one += 1;
    }
    true
}

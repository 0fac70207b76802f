//! A function of an actor type: one handler, as the machinery sees it.

use std::future::Future;

use elastin_types::{CallError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;
use crate::body::Body;

/// One handler. Written by `#[handlers]`.
pub trait Function: Send + Sync + 'static {
    /// The actor type that has it.
    type Actor: Actor;
    /// The parameters, the context left out, as a tuple.
    type Arguments: Serialize + DeserializeOwned + Send + 'static;
    /// What the handler returns.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What a call gives: the reply or why there is none.
    type Output;

    /// Its name.
    const NAME: &'static str;
    /// The id that belongs to the name.
    const METHOD: Method = Method::of(Self::NAME);
    /// Whether it only reads the actor.
    const READ_ONLY: bool;

    /// Runs the handler, and gives back the actor and the reply.
    fn run(
        body: Box<Body<Self::Actor>>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Box<Body<Self::Actor>>, Self::Reply)> + Send + 'static;

    /// Makes what a call gives of a reply or the lack of one.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

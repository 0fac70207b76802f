//! A function of an actor type: one handler, as the machinery sees it.

use std::future::Future;
use std::marker::PhantomData;

use elastin_types::{CallError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;
use crate::body::Body;

/// What an actor type has for each of its handlers, told apart by the number of the handler's [`Method`]. Written by
/// `#[handlers]`.
pub trait Answers<const METHOD: u32>: Actor {
    /// The parameters, the context left out, as a tuple.
    type Arguments: Serialize + DeserializeOwned + Send + 'static;
    /// What the handler returns.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What a call gives: the reply or why there is none.
    type Output;

    /// The handler's name.
    const NAME: &'static str;
    /// Whether it only reads the actor.
    const READ_ONLY: bool;
    /// Whether it may wait for something: it is an `async fn`.
    const MAY_WAIT: bool;

    /// Runs a handler that never waits, and so needs no future. Only called where [`MAY_WAIT`](Answers::MAY_WAIT) is false.
    fn run_plain(state: &mut Self, arguments: Self::Arguments) -> Self::Reply;

    /// Runs the handler, and gives back the actor and the reply.
    fn run(
        body: Box<Body<Self>>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Box<Body<Self>>, Self::Reply)> + Send + 'static;

    /// Makes what a call gives of a reply or the lack of one.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

/// The handler of `A` with this method number, as a type.
pub struct Handler<A, const METHOD: u32>(PhantomData<fn() -> A>);

/// One handler. Every [`Handler`] of an actor type is one.
pub trait Function: 'static {
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
    /// Whether it may wait for something: it is an `async fn`.
    const MAY_WAIT: bool;

    /// Runs a handler that never waits, and so needs no future. Only called where [`MAY_WAIT`](Function::MAY_WAIT) is false.
    fn run_plain(state: &mut Self::Actor, arguments: Self::Arguments) -> Self::Reply;

    /// Runs the handler, and gives back the actor and the reply.
    fn run(
        body: Box<Body<Self::Actor>>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Box<Body<Self::Actor>>, Self::Reply)> + Send + 'static;

    /// Makes what a call gives of a reply or the lack of one.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

impl<A: Answers<METHOD>, const METHOD: u32> Function for Handler<A, METHOD> {
    type Actor = A;
    type Arguments = A::Arguments;
    type Reply = A::Reply;
    type Output = A::Output;

    const NAME: &'static str = <A as Answers<METHOD>>::NAME;
    const READ_ONLY: bool = A::READ_ONLY;
    const MAY_WAIT: bool = A::MAY_WAIT;

    fn run_plain(state: &mut A, arguments: A::Arguments) -> A::Reply {
        A::run_plain(state, arguments)
    }

    fn run(
        body: Box<Body<A>>,
        arguments: A::Arguments,
    ) -> impl Future<Output = (Box<Body<A>>, A::Reply)> + Send + 'static {
        A::run(body, arguments)
    }

    fn output(outcome: Result<A::Reply, CallError>) -> A::Output {
        A::output(outcome)
    }
}

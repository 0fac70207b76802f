//! A function of an actor type: one handler, as the machinery sees it.

use std::future::Future;
use std::marker::PhantomData;

use elastin_types::{CallError, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Actor;
use crate::instance::Instance;
use crate::shared_instance::{Held, SharedInstance};

/// What an actor type has for each of its handlers, told apart by the number of the handler's [`Method`]. Written by
/// `#[handlers]`.
pub trait Answers<const METHOD: u32>: Actor {
    /// The parameters, the context left out, as a tuple.
    type Arguments: Serialize + DeserializeOwned + Send + 'static;
    /// What the handler returns.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What a call gives: the reply or why there is none.
    type Output;
    /// What the handler's future holds the actor by: a [`SharedInstance`] if it is [`SHARED`](Answers::SHARED) and
    /// [may wait](Answers::MAY_WAIT), else the box.
    type Held: Held<Self>;

    /// The handler's name.
    const NAME: &'static str;
    /// Whether it takes `&self`, so that it can run while others that do wait for something.
    const SHARED: bool;
    /// Whether it only reads the actor.
    const READ_ONLY: bool;
    /// Whether it may wait for something: it is an `async fn`.
    const MAY_WAIT: bool;

    /// Runs a handler with `&mut self` that never waits, and so needs no future.
    fn run_plain(state: &mut Self, arguments: Self::Arguments) -> Self::Reply {
        let _ = (state, arguments);
        unreachable!("this handler takes `&self`, or runs as a future")
    }

    /// Runs a handler with `&self` that never waits.
    fn read_plain(state: &Self, arguments: Self::Arguments) -> Self::Reply {
        let _ = (state, arguments);
        unreachable!("this handler takes `&mut self`, or runs as a future")
    }

    /// Runs a handler that may wait; gives back what it held the actor by, and the reply.
    fn run(
        held: Self::Held,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Self::Held, Self::Reply)> + Send + 'static {
        drop((held, arguments));
        async { unreachable!("this handler never waits") }
    }

    /// Lends the actor to turns of this function and others. Only called where it may wait and is shared.
    fn lend(instance: Box<Instance<Self>>) -> SharedInstance {
        drop(instance);
        unreachable!("this handler has its actor for itself")
    }

    /// Makes what a call gives of a reply or the lack of one.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

/// The handler of `A` with this method number, as a type.
pub struct Handler<A, const METHOD: u32>(PhantomData<fn() -> A>);

/// One handler. Every [`Handler`] of an actor type is one; [`Answers`] says what its parts are.
pub trait Function: 'static {
    /// The actor type that has it.
    type Actor: Actor;
    /// The parameters, the context left out, as a tuple.
    type Arguments: Serialize + DeserializeOwned + Send + 'static;
    /// What the handler returns.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What a call gives: the reply or why there is none.
    type Output;
    /// What the handler's future holds the actor by.
    type Held: Held<Self::Actor>;

    /// Its name.
    const NAME: &'static str;
    /// The id that belongs to the name.
    const METHOD: Method = Method::of(Self::NAME);
    /// Whether it takes `&self`.
    const SHARED: bool;
    /// Whether it only reads the actor.
    const READ_ONLY: bool;
    /// Whether it may wait for something: it is an `async fn`.
    const MAY_WAIT: bool;

    /// Runs a handler that never waits, on an actor that nobody else has.
    fn run_plain(state: &mut Self::Actor, arguments: Self::Arguments) -> Self::Reply;

    /// Runs a handler with `&self` that never waits.
    fn read_plain(state: &Self::Actor, arguments: Self::Arguments) -> Self::Reply;

    /// Runs a handler that may wait; gives back what it held the actor by, and the reply.
    fn run(
        held: Self::Held,
        arguments: Self::Arguments,
    ) -> impl Future<Output = (Self::Held, Self::Reply)> + Send + 'static;

    /// Lends the actor. Only called where the handler may wait and is shared.
    fn lend(instance: Box<Instance<Self::Actor>>) -> SharedInstance;

    /// Makes what a call gives of a reply or the lack of one.
    fn output(outcome: Result<Self::Reply, CallError>) -> Self::Output;
}

impl<A: Answers<METHOD>, const METHOD: u32> Function for Handler<A, METHOD> {
    type Actor = A;
    type Arguments = A::Arguments;
    type Reply = A::Reply;
    type Output = A::Output;
    type Held = A::Held;

    const NAME: &'static str = <A as Answers<METHOD>>::NAME;
    const SHARED: bool = A::SHARED;
    const READ_ONLY: bool = A::READ_ONLY;
    const MAY_WAIT: bool = A::MAY_WAIT;

    #[inline]
    fn run_plain(state: &mut A, arguments: A::Arguments) -> A::Reply {
        if A::SHARED {
            return A::read_plain(state, arguments);
        }
        A::run_plain(state, arguments)
    }

    fn read_plain(state: &A, arguments: A::Arguments) -> A::Reply {
        A::read_plain(state, arguments)
    }

    fn run(held: A::Held, arguments: A::Arguments) -> impl Future<Output = (A::Held, A::Reply)> + Send + 'static {
        A::run(held, arguments)
    }

    fn lend(instance: Box<Instance<A>>) -> SharedInstance {
        A::lend(instance)
    }

    fn output(outcome: Result<A::Reply, CallError>) -> A::Output {
        A::output(outcome)
    }
}

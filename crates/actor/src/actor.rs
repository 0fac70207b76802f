//! What an actor type is.

use std::pin::Pin;
use std::sync::Arc;

use elastin_types::{ActorId, ActorSchema, ActorType, FunctionSchema, Message, Method, Property, PropertySchema};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::hooks::HookFuture;
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::reply::ReplyTo;
use crate::turn::Turn;

/// A type of actors. Written by `#[derive(Actor)]` on the struct that is the actor's state.
///
/// The state is `Serialize + Deserialize`, so that it can move between nodes and be saved, and `Default`, which is the
/// state of an actor that nobody has used before.
pub trait Actor: Serialize + DeserializeOwned + Default + Send + 'static {
    /// The name that policies and people use.
    const NAME: &'static str;
    /// The id that belongs to the name.
    const KIND: ActorType = ActorType::of(Self::NAME);
    /// When the state is saved.
    const PERSIST: Persist;
    /// The typed reference: the struct that has a method for each handler.
    type Ref: TypedRef<Actor = Self>;

    /// The fields that hold references to actors.
    fn properties() -> Vec<PropertySchema>;

    /// Shows every actor that the fields refer to, field by field, in the fields' own order.
    fn visit_references(&self, visit: &mut dyn FnMut(Property, &ActorId));
}

/// An actor type's functions and hooks. Written by `#[handlers]` on the `impl` block of the actor.
pub trait Handlers: Actor {
    /// Whether there is a handler that waits while others share its actor: an `async fn` with `&self`.
    const SHARES: bool;

    /// The functions that actors of this type can be called with.
    fn functions() -> Vec<FunctionSchema>;

    /// Makes a turn of a message from outside the process; gives both back when there is no such function or its
    /// arguments can't be decoded, together with the reason.
    fn decode(message: Arc<Message>, reply: Option<Box<ReplyTo>>) -> Result<Pin<Box<dyn Turn<Self>>>, Undecoded>;

    /// Runs a lifecycle hook; `None` if the actor has none of that kind.
    fn hook(&mut self, hook: Hook) -> Option<HookFuture<'_>>;

    /// Which hooks there are, so that nothing is run for the others.
    fn hooks() -> &'static [Hook];

    /// Whether there is a handler for reminders.
    fn takes_reminders() -> bool {
        false
    }
}

/// A moment in the life of an activation at which an actor may run code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before the first turn on this node, after the state is there.
    Activate,
    /// Before the activation ends because it was idle, asked for it, or the node shuts down.
    Deactivate,
    /// Before the state is taken to another node.
    BeforeMove,
    /// After the state has arrived on another node, before the first turn there.
    AfterMove,
}

/// A message that is not a call of this actor type.
#[derive(Debug)]
pub struct Undecoded {
    /// The function that was asked for.
    pub method: Method,
    /// Why it can't be run.
    pub why: elastin_types::Rejected,
    /// Who waits for the reply.
    pub reply: Option<Box<ReplyTo>>,
}

impl Undecoded {
    /// The actor type has no such function. The message has only its id, since names don't travel.
    pub fn unknown_method<A: Actor>(message: &Message, reply: Option<Box<ReplyTo>>) -> Self {
        Self {
            method: message.method,
            why: elastin_types::Rejected::UnknownMethod {
                kind: A::NAME.to_owned(),
                method: format!("#{:08x}", message.method.number()),
            },
            reply,
        }
    }
}

/// The struct with a method for each handler of an actor type. Written by `#[derive(Actor)]`.
pub trait TypedRef: Clone + Send + Sync + 'static {
    /// The actor type.
    type Actor: Actor<Ref = Self>;

    /// Wraps a reference.
    fn from_raw(raw: RawRef<Self::Actor>) -> Self;

    /// The reference within.
    fn raw(&self) -> &RawRef<Self::Actor>;
}

/// The schema of an actor type: what policies can name.
pub fn schema_of<A: Handlers>() -> ActorSchema {
    ActorSchema {
        name: A::NAME.to_owned(),
        functions: A::functions(),
        properties: A::properties(),
    }
}

//! A turn: the execution of one call in one actor, from its creation until its reply is sent.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

use elastin_types::{ActorId, CallError, Message, Method};

use crate::actor::Hook;
use crate::call_context::MessageContext;
use crate::host::Host;
use crate::instance::Instance;
use crate::reply::ReplySender;
use crate::shared_instance::SharedInstance;

/// A call of an actor of type `A`, with its function's type erased.
pub trait Turn<A>: Send {
    /// The function.
    fn method(&self) -> Method;

    /// Whether it only reads the actor.
    fn read_only(&self) -> bool {
        false
    }

    /// Whether it borrows its actor as `&self`, so that it can interleave with other such turns.
    fn shared(&self) -> bool {
        false
    }

    /// Whether it may be suspended before it ends.
    fn may_wait(&self) -> bool {
        true
    }

    /// The lifecycle hook, if this turn is one instead of a call.
    fn hook(&self) -> Option<Hook> {
        None
    }

    /// The message context; `None` once the turn was opened.
    fn message_context(&self) -> Option<&MessageContext>;

    /// Takes the message context, for the scope of the turn that is about to run; `None` if the caller is gone.
    fn open(self: Pin<&mut Self>) -> Option<MessageContext>;

    /// The encoded size of the arguments; 0 once the handler runs.
    fn arguments_size(&self) -> u64 {
        0
    }

    /// Makes an instance shareable among turns. Only for turns that are [shared](Turn::shared) and
    /// [may wait](Turn::may_wait).
    fn share_instance(&self, instance: Box<Instance<A>>) -> SharedInstance {
        drop(instance);
        unreachable!("an exclusive turn does not share its actor")
    }

    /// Starts the handler and polls it once. The turn takes the instance and puts it back when it ends.
    fn start(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()>;

    /// Like [`start`](Turn::start), on a shared instance. Only for turns that are [shared](Turn::shared).
    fn start_shared(self: Pin<&mut Self>, shared: &SharedInstance, cx: &mut Context<'_>) -> Poll<()> {
        let _ = (shared, cx);
        unreachable!("an exclusive turn does not share its actor")
    }

    /// Polls the handler. An exclusive turn puts its instance back when it ends.
    fn poll(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends the handler's reply.
    fn reply(self: Pin<&mut Self>);

    /// Sends an error instead of a reply.
    fn fail(self: Pin<&mut Self>, error: CallError);

    /// Encodes a turn that has not started as a message. A local caller's reply sender is returned along with it;
    /// otherwise the message's header identifies the destination of the reply.
    fn encode(self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySender>)>;

    /// Returns a turn that has ended and replied to the turn pool, so that a later call needs no allocation.
    fn keep(self: Pin<Box<Self>>) {}

    /// Reuses a turn that has ended for the call in a [`Posted`]'s `payload`. Returns `false`, without any effect, if
    /// that is a call of another function.
    fn refill(self: Pin<&mut Self>, payload: &mut dyn Any) -> bool {
        let _ = payload;
        false
    }
}

/// A call to be enqueued in a mailbox, with its function's type erased. It becomes a turn there, in a recycled
/// allocation if possible.
pub trait Posted<A> {
    /// The message context.
    fn message_context(&self) -> &MessageContext;

    /// Whether it borrows its actor as `&self`.
    fn shared(&self) -> bool;

    /// Allocates a turn for the call.
    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>>;

    /// Moves the call into a turn that has ended. Returns `false`, without any effect, if that is a turn of another
    /// function.
    fn put_into(&mut self, spare: Pin<&mut dyn Turn<A>>) -> bool;
}

/// A turn that exists already, to be enqueued in a mailbox.
pub struct Made<A>(Option<Pin<Box<dyn Turn<A>>>>);

impl<A> Made<A> {
    /// A turn that has not started.
    pub fn new(turn: Pin<Box<dyn Turn<A>>>) -> Self {
        Self(Some(turn))
    }

    /// The turn, if it was not enqueued.
    pub fn into_turn(self) -> Option<Pin<Box<dyn Turn<A>>>> {
        self.0
    }
}

impl<A> Posted<A> for Made<A> {
    fn message_context(&self) -> &MessageContext {
        let turn = self.0.as_ref().expect("the turn is not in a mailbox yet");
        turn.message_context()
            .expect("a turn that has not started has its message context")
    }

    fn shared(&self) -> bool {
        self.0.as_ref().is_some_and(|turn| turn.shared())
    }

    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>> {
        self.0.take().expect("a turn is enqueued once")
    }

    fn put_into(&mut self, _spare: Pin<&mut dyn Turn<A>>) -> bool {
        false
    }
}

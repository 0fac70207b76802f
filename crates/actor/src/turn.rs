//! A turn: the execution of one call in one actor, from its creation until its reply is sent.

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
    fn reply(self: Pin<&mut Self>) {}

    /// Sends an error instead of a reply.
    fn fail(self: Pin<&mut Self>, error: CallError);

    /// Encodes a turn that has not started as a message. A local caller's reply sender is returned along with it;
    /// otherwise the message's header identifies the destination of the reply.
    fn encode(self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySender>)>;
}

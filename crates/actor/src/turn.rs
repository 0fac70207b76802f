//! A turn: one call of one actor, from the moment it is made until its reply has left.

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

/// A call of an actor of type `A`, whatever the function.
pub trait Turn<A>: Send {
    /// The function.
    fn method(&self) -> Method;

    /// Whether it only reads the actor.
    fn read_only(&self) -> bool;

    /// Whether it borrows its actor as `&self`, so that it can run while others that do wait for something.
    fn shared(&self) -> bool {
        false
    }

    /// Whether it may wait for something before it is over.
    fn may_wait(&self) -> bool {
        true
    }

    /// The lifecycle hook that it is, if it is one and no call.
    fn hook(&self) -> Option<Hook> {
        None
    }

    /// What the call carries besides its arguments; gone once the turn was opened.
    fn message_context(&self) -> Option<&MessageContext>;

    /// Takes what the call carries, for the scope of the turn that is about to run; `None` if the caller has gone away.
    fn open(self: Pin<&mut Self>) -> Option<MessageContext>;

    /// The encoded size of the arguments; 0 once the handler runs.
    fn arguments_size(&self) -> u64;

    /// Lends an actor to this turn and others. Only for turns that are [shared](Turn::shared) and
    /// [may wait](Turn::may_wait).
    fn lend(&self, instance: Box<Instance<A>>) -> SharedInstance {
        drop(instance);
        unreachable!("this turn has its actor for itself")
    }

    /// Runs a turn that never waits as part of a worker's visit to its actor, whose scope is entered.
    fn run_at_once(self: Pin<&mut Self>, instance: &mut Instance<A>) -> AtOnce {
        let _ = instance;
        AtOnce::MayWait
    }

    /// Gives the turn its actor and runs the handler, until it waits or is over. The actor is out of its place while the
    /// turn waits, and comes back when it is over.
    fn start(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()>;

    /// The same on an actor that other turns share. Only for turns that are [shared](Turn::shared).
    fn start_shared(self: Pin<&mut Self>, shared: &SharedInstance, cx: &mut Context<'_>) -> Poll<()> {
        let _ = (shared, cx);
        unreachable!("this turn has its actor for itself")
    }

    /// Runs the handler on, until it waits or is over. An actor that the turn has for itself comes back to its place.
    fn poll(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()>;

    /// Sends the reply that the handler gave.
    fn reply(self: Pin<&mut Self>);

    /// Sends an error instead of a reply.
    fn fail(self: Pin<&mut Self>, error: CallError);

    /// Makes a message of a turn that has not started. The reply slot comes along if the caller is in this process; else
    /// the message's header says where the reply goes.
    fn encode(self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySender>)>;

    /// Keeps a turn that is over and has replied, so that a later call needs no allocation.
    fn keep(self: Pin<Box<Self>>) {}

    /// Makes a turn that is over hold another call of the same function, taken out of the
    /// [`Posted`]'s `payload`; says whether it is the same function.
    fn refill(self: Pin<&mut Self>, payload: &mut dyn Any) -> bool;
}

/// What became of a turn that was to be run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Nothing: it may wait for something, which this is not the way for.
    MayWait,
    /// It did not run: nobody waits for it any longer, or its caller was told that its time is over.
    Skipped,
    /// It is over, and nobody waits for a reply.
    Told,
    /// It is over; the reply has not left.
    Replies,
    /// It panicked. Its scope is as it was when that happened.
    Panicked,
}

/// A call on its way into a mailbox, whatever the function. It becomes a turn there, in the allocation of one that is over
/// if there is one.
pub trait Posted<A> {
    /// What the call carries besides its arguments.
    fn message_context(&self) -> &MessageContext;

    /// Whether it borrows its actor as `&self`.
    fn shared(&self) -> bool;

    /// Makes the call a turn of its own.
    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>>;

    /// Puts the call into a turn that is over; says whether that is one of the same function. If not, nothing has happened.
    fn put_into(&mut self, spare: Pin<&mut dyn Turn<A>>) -> bool;
}

/// A turn that was made elsewhere, on its way into a mailbox.
pub struct Made<A>(Option<Pin<Box<dyn Turn<A>>>>);

impl<A> Made<A> {
    /// A turn that has not started.
    pub fn new(turn: Pin<Box<dyn Turn<A>>>) -> Self {
        Self(Some(turn))
    }

    /// The turn, if it did not get into the mailbox.
    pub fn into_turn(self) -> Option<Pin<Box<dyn Turn<A>>>> {
        self.0
    }
}

impl<A> Posted<A> for Made<A> {
    fn message_context(&self) -> &MessageContext {
        let turn = self.0.as_ref().expect("the turn is not in a mailbox yet");
        turn.message_context().expect("a turn that has not started carries it")
    }

    fn shared(&self) -> bool {
        self.0.as_ref().is_some_and(|turn| turn.shared())
    }

    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>> {
        self.0.take().expect("a turn goes into one mailbox")
    }

    fn put_into(&mut self, _spare: Pin<&mut dyn Turn<A>>) -> bool {
        false
    }
}

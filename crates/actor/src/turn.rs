//! A turn: one call of one actor, from the moment it is made until its reply has left.
//!
//! One allocation holds a call all the way: first its arguments, while it is in a mailbox, then the handler's future, then the
//! reply. When it is over, the allocation can hold the next call of the same function.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use elastin_types::{ActorId, CallError, Message, Method};
use pin_project_lite::pin_project;

use crate::actor::Hook;
use crate::body::Body;
use crate::codec;
use crate::flow::Carried;
use crate::function::Function;
use crate::host::Host;
use crate::slot::{ReplySlot, ReplyTo, Slot};

/// A call of an actor of type `A`, whatever the function.
pub trait Turn<A>: Send {
    /// The function.
    fn method(&self) -> Method;

    /// Whether it only reads the actor.
    fn read_only(&self) -> bool;

    /// Whether it may wait for something before it is over.
    fn may_wait(&self) -> bool {
        true
    }

    /// The lifecycle hook that it is, if it is one and no call.
    fn hook(&self) -> Option<Hook> {
        None
    }

    /// What the call carries besides its arguments; gone once the turn was opened.
    fn carried(&self) -> Option<&Carried>;

    /// Takes what the call carries, for the scope of the turn that is about to run; `None` if the caller has gone away.
    fn open(self: Pin<&mut Self>) -> Option<Carried>;

    /// The encoded size of the arguments; 0 once the handler runs.
    fn arguments_size(&self) -> u64;

    /// Gives the turn its actor and runs the handler, until it waits or gives back the actor.
    fn start(self: Pin<&mut Self>, body: Box<Body<A>>, cx: &mut Context<'_>) -> Poll<Box<Body<A>>>;

    /// Runs the handler on, until it waits or gives back the actor.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Body<A>>>;

    /// Sends the reply that the handler gave.
    fn reply(self: Pin<&mut Self>);

    /// Sends an error instead of a reply.
    fn fail(self: Pin<&mut Self>, error: CallError);

    /// Makes a message of a turn that has not started. The reply slot comes along if the caller is in this process; else
    /// the message's header says where the reply goes.
    fn encode(self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySlot>)>;

    /// Makes a turn that is over hold another call of the same function, taken out of the
    /// [`Posted`]'s `payload`; says whether it is the same function.
    fn refill(self: Pin<&mut Self>, payload: &mut dyn Any) -> bool;
}

/// A call on its way into a mailbox, whatever the function. It becomes a turn there, in the allocation of one that is over
/// if there is one.
pub trait Posted<A> {
    /// What the call carries besides its arguments.
    fn carried(&self) -> &Carried;

    /// Makes the call a turn of its own.
    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>>;

    /// Puts the call into a turn that is over; says whether that is one of the same function. If not, nothing has happened.
    fn put_into(&mut self, spare: Pin<&mut dyn Turn<A>>) -> bool;
}

/// Where a reply goes.
pub(crate) enum Destination<R> {
    Nowhere,
    Local(Arc<Slot<R>>),
    /// Boxed, because it is large and rare in comparison.
    Elsewhere(Box<ReplyTo>),
}

impl<R> Destination<R> {
    #[inline]
    fn take(&mut self) -> Self {
        std::mem::replace(self, Destination::Nowhere)
    }

    /// Whether the caller has gone away: it has the other end of the slot for as long as it waits.
    #[inline]
    fn is_abandoned(&self) -> bool {
        matches!(self, Destination::Local(slot) if Arc::strong_count(slot) == 1)
    }
}

/// A call of one function that is to become a turn.
pub(crate) struct Payload<F: Function> {
    pub(crate) arguments: F::Arguments,
    pub(crate) carried: Carried,
    pub(crate) destination: Destination<F::Reply>,
}

/// A call on its way into a mailbox; empty once it is there.
pub(crate) struct Post<F: Function>(pub(crate) Option<Payload<F>>);

impl<F: Function> Posted<F::Actor> for Post<F> {
    #[inline]
    fn carried(&self) -> &Carried {
        &self.0.as_ref().expect("the call has not become a turn yet").carried
    }

    #[inline]
    fn boxed(&mut self) -> Pin<Box<dyn Turn<F::Actor>>> {
        boxed::<F>(self.0.take().expect("a call becomes a turn once"))
    }

    #[inline]
    fn put_into(&mut self, spare: Pin<&mut dyn Turn<F::Actor>>) -> bool {
        spare.refill(&mut self.0)
    }
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
    fn carried(&self) -> &Carried {
        let turn = self.0.as_ref().expect("the turn is not in a mailbox yet");
        turn.carried().expect("a turn that has not started carries it")
    }

    fn boxed(&mut self) -> Pin<Box<dyn Turn<A>>> {
        self.0.take().expect("a turn goes into one mailbox")
    }

    fn put_into(&mut self, _spare: Pin<&mut dyn Turn<A>>) -> bool {
        false
    }
}

pin_project! {
    #[project = StageProjection]
    #[project_replace = StageOwned]
    enum Stage<Arguments, Running, Reply> {
        Waiting { arguments: Arguments, carried: Option<Carried> },
        Running { #[pin] future: Running },
        Finished { reply: Option<Reply> },
    }
}

pin_project! {
    /// The turn of one function. `Start` and `Running` are the function's `run` and its future, which have no names.
    pub(crate) struct Envelope<F: Function, Start, Running> {
        #[pin]
        stage: Stage<F::Arguments, Running, F::Reply>,
        start: Start,
        destination: Destination<F::Reply>,
    }
}

/// A turn whose caller runs it on its own thread at once.
#[inline]
pub(crate) fn running<F: Function>(
    body: Box<Body<F::Actor>>,
    arguments: F::Arguments,
) -> Pin<Box<impl InlineTurn<F> + Turn<F::Actor>>> {
    let start = F::run;
    Box::pin(Envelope::<F, _, _> {
        stage: Stage::Running {
            future: start(body, arguments),
        },
        start,
        destination: Destination::Nowhere,
    })
}

/// A turn that is over and whose reply could not leave yet.
pub(crate) fn finished<F: Function>(reply: F::Reply, slot: Arc<Slot<F::Reply>>) -> Pin<Box<dyn Turn<F::Actor>>> {
    let stage = Stage::Finished { reply: Some(reply) };
    envelope::<F, _, _>(F::run, stage, Destination::Local(slot))
}

/// A turn of a message from elsewhere.
pub fn received<F: Function>(
    message: Message,
    reply: Option<ReplyTo>,
) -> Result<Pin<Box<dyn Turn<F::Actor>>>, crate::Undecoded> {
    match codec::decode::<F::Arguments>(&message.body, "the arguments", F::NAME) {
        Ok(arguments) => Ok(boxed::<F>(Payload {
            arguments,
            carried: Carried::received(message.header),
            destination: reply.map_or(Destination::Nowhere, |reply| Destination::Elsewhere(Box::new(reply))),
        })),
        Err(why) => Err(crate::Undecoded {
            method: F::METHOD,
            why,
            reply,
        }),
    }
}

#[inline]
fn boxed<F: Function>(payload: Payload<F>) -> Pin<Box<dyn Turn<F::Actor>>> {
    let Payload {
        arguments,
        carried,
        destination,
    } = payload;
    let carried = Some(carried);
    envelope::<F, _, _>(F::run, Stage::Waiting { arguments, carried }, destination)
}

/// The parameters name what can't be written: the future that this function's `run` returns.
#[inline]
fn envelope<F, Start, Running>(
    start: Start,
    stage: Stage<F::Arguments, Running, F::Reply>,
    destination: Destination<F::Reply>,
) -> Pin<Box<dyn Turn<F::Actor>>>
where
    F: Function,
    Start: Fn(Box<Body<F::Actor>>, F::Arguments) -> Running + Send + 'static,
    Running: Future<Output = (Box<Body<F::Actor>>, F::Reply)> + Send + 'static,
{
    Box::pin(Envelope::<F, Start, Running> {
        stage,
        start,
        destination,
    })
}

/// What the caller of an inline turn needs of it besides [`Turn`], in the reply's own type.
pub(crate) trait InlineTurn<F: Function> {
    /// Takes the reply that the handler gave.
    fn take_reply(self: Pin<&mut Self>) -> F::Reply;

    /// The reply goes to a slot, because the caller can't have it at once.
    fn answer_at(self: Pin<&mut Self>, slot: Arc<Slot<F::Reply>>);
}

impl<F, Start, Running> InlineTurn<F> for Envelope<F, Start, Running>
where
    F: Function,
{
    #[inline]
    fn take_reply(self: Pin<&mut Self>) -> F::Reply {
        match self.project().stage.project() {
            StageProjection::Finished { reply } => reply.take().expect("the reply is taken once"),
            StageProjection::Waiting { .. } | StageProjection::Running { .. } => {
                unreachable!("the handler has returned")
            }
        }
    }

    fn answer_at(self: Pin<&mut Self>, slot: Arc<Slot<F::Reply>>) {
        *self.project().destination = Destination::Local(slot);
    }
}

impl<F, Start, Running> Turn<F::Actor> for Envelope<F, Start, Running>
where
    F: Function,
    Start: Fn(Box<Body<F::Actor>>, F::Arguments) -> Running + Send,
    Running: Future<Output = (Box<Body<F::Actor>>, F::Reply)> + Send,
{
    fn method(&self) -> Method {
        F::METHOD
    }

    fn read_only(&self) -> bool {
        F::READ_ONLY
    }

    fn may_wait(&self) -> bool {
        F::MAY_WAIT
    }

    fn carried(&self) -> Option<&Carried> {
        match &self.stage {
            Stage::Waiting { carried, .. } => carried.as_ref(),
            Stage::Running { .. } | Stage::Finished { .. } => None,
        }
    }

    fn open(self: Pin<&mut Self>) -> Option<Carried> {
        let this = self.project();
        match this.stage.project() {
            StageProjection::Waiting { carried, .. } if !this.destination.is_abandoned() => carried.take(),
            _ => None,
        }
    }

    fn arguments_size(&self) -> u64 {
        match &self.stage {
            Stage::Waiting { arguments, .. } => codec::encoded_size(arguments),
            Stage::Running { .. } | Stage::Finished { .. } => 0,
        }
    }

    fn start(self: Pin<&mut Self>, mut body: Box<Body<F::Actor>>, cx: &mut Context<'_>) -> Poll<Box<Body<F::Actor>>> {
        let mut this = self.project();
        let nothing = Stage::Finished { reply: None };
        let StageOwned::Waiting { arguments, .. } = this.stage.as_mut().project_replace(nothing) else {
            unreachable!("a turn starts once")
        };
        if !F::MAY_WAIT {
            let reply = F::run_plain(&mut body.state, arguments);
            this.stage.set(Stage::Finished { reply: Some(reply) });
            body.changed |= !F::READ_ONLY;
            return Poll::Ready(body);
        }
        let future = (this.start)(body, arguments);
        this.stage.set(Stage::Running { future });
        poll_stage::<F, _>(this.stage, cx)
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Body<F::Actor>>> {
        poll_stage::<F, _>(self.project().stage, cx)
    }

    fn reply(self: Pin<&mut Self>) {
        let this = self.project();
        let StageProjection::Finished { reply } = this.stage.project() else {
            return;
        };
        let Some(reply) = reply.take() else { return };
        match this.destination.take() {
            Destination::Nowhere => {}
            Destination::Local(slot) => slot.put(Ok(reply)),
            Destination::Elsewhere(to) => {
                to.complete(codec::encode(&reply, "the reply", F::NAME).map_err(CallError::Rejected));
            }
        }
    }

    fn fail(self: Pin<&mut Self>, error: CallError) {
        match self.project().destination.take() {
            Destination::Nowhere => {}
            Destination::Local(slot) => slot.put(Err(error)),
            Destination::Elsewhere(to) => to.complete(Err(error)),
        }
    }

    fn encode(mut self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySlot>)> {
        let this = self.as_mut().project();
        let nothing = Stage::Finished { reply: None };
        let StageOwned::Waiting { arguments, carried } = this.stage.project_replace(nothing) else {
            unreachable!("a turn that started stays here")
        };
        let body = match codec::encode(&arguments, "the arguments", F::NAME) {
            Ok(body) => body,
            Err(why) => {
                self.as_mut().fail(CallError::Rejected(why));
                return None;
            }
        };
        let carried = carried.expect("a turn that was not opened carries it");
        let header = carried.into_header(host);
        let reply = match this.destination.take() {
            Destination::Nowhere => None,
            Destination::Local(slot) => Some(ReplySlot::decoding::<F>(slot, header.call)),
            Destination::Elsewhere(to) => to.pass_on(),
        };
        let message = Message {
            target: target.clone(),
            header,
            method: F::METHOD,
            body,
        };
        Some((message, reply))
    }

    fn refill(self: Pin<&mut Self>, payload: &mut dyn Any) -> bool {
        let Some(payload) = payload.downcast_mut::<Option<Payload<F>>>() else {
            return false;
        };
        let Payload {
            arguments,
            carried,
            destination,
        } = payload.take().expect("a call becomes a turn once");
        let mut this = self.project();
        let carried = Some(carried);
        this.stage.set(Stage::Waiting { arguments, carried });
        *this.destination = destination;
        true
    }
}

/// Runs the handler on, until it waits or gives back the actor.
#[inline]
fn poll_stage<F: Function, Running>(
    mut stage: Pin<&mut Stage<F::Arguments, Running, F::Reply>>,
    cx: &mut Context<'_>,
) -> Poll<Box<Body<F::Actor>>>
where
    Running: Future<Output = (Box<Body<F::Actor>>, F::Reply)>,
{
    let StageProjection::Running { future } = stage.as_mut().project() else {
        unreachable!("only a running turn is polled")
    };
    future.poll(cx).map(|(mut body, reply)| {
        stage.set(Stage::Finished { reply: Some(reply) });
        body.changed |= !F::READ_ONLY;
        body
    })
}

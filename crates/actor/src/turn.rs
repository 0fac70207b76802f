//! A turn: one call of one actor, from the moment it is made until its reply has left.
//!
//! One allocation holds a call all the way: first its arguments, while it is in a mailbox, then the handler's future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use elastin_types::{ActorId, CallError, Header, Message, Method, Time};
use pin_project_lite::pin_project;

use crate::actor::Hook;
use crate::body::Body;
use crate::codec;
use crate::function::Function;
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

    /// What the call carries besides its arguments; gone once [`take_header`](Turn::take_header) took it.
    fn header(&self) -> Option<&Header>;

    /// Takes the header for the scope of the turn that is about to run.
    fn take_header(self: Pin<&mut Self>) -> Option<Header>;

    /// Whether the caller has gone away.
    fn is_abandoned(&self) -> bool;

    /// The encoded size of the arguments; 0 once the handler runs.
    fn arguments_size(&self) -> u64;

    /// Gives the turn its actor: from here on it is polled.
    fn start(self: Pin<&mut Self>, body: Box<Body<A>>);

    /// Runs the handler on, until it waits or gives back the actor.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Body<A>>>;

    /// Sends the reply that the handler gave.
    fn reply(self: Pin<&mut Self>);

    /// Sends an error instead of a reply.
    fn fail(self: Pin<&mut Self>, error: CallError);

    /// Makes a message of a turn that has not started. The reply slot comes along if the caller is in this process; else
    /// the message's header says where the reply goes.
    fn encode(self: Pin<Box<Self>>, target: &ActorId) -> Option<(Message, Option<ReplySlot>)>;
}

/// Where a reply goes.
enum Destination<R> {
    Nowhere,
    Local(Arc<Slot<R>>),
    Elsewhere(ReplyTo),
}

impl<R> Destination<R> {
    fn take(&mut self) -> Self {
        std::mem::replace(self, Destination::Nowhere)
    }
}

pin_project! {
    #[project = StageProjection]
    #[project_replace = StageOwned]
    enum Stage<Arguments, Running> {
        Waiting { arguments: Arguments },
        Running { #[pin] future: Running },
        Finished,
    }
}

pin_project! {
    /// The turn of one function. `Start` and `Running` are the function's `run` and its future, which have no names.
    /// `Carried` is the header, or nothing for an inline turn, whose scope has all that a header would.
    pub(crate) struct Envelope<F: Function, Start, Running, Carried> {
        #[pin]
        stage: Stage<F::Arguments, Running>,
        start: Start,
        reply: Option<F::Reply>,
        destination: Destination<F::Reply>,
        header: Carried,
    }
}

/// A header, or the lack of one.
trait Carried: Send {
    fn get(&self) -> Option<&Header>;

    fn take(&mut self) -> Option<Header>;
}

impl Carried for Option<Header> {
    fn get(&self) -> Option<&Header> {
        self.as_ref()
    }

    fn take(&mut self) -> Option<Header> {
        self.take()
    }
}

impl Carried for () {
    fn get(&self) -> Option<&Header> {
        None
    }

    fn take(&mut self) -> Option<Header> {
        None
    }
}

/// A turn whose caller runs it on its own thread at once.
pub(crate) fn running<F: Function>(
    body: Box<Body<F::Actor>>,
    arguments: F::Arguments,
) -> Pin<Box<impl InlineTurn<F> + Turn<F::Actor>>> {
    let start = F::run;
    Box::pin(Envelope::<F, _, _, ()> {
        stage: Stage::Running {
            future: start(body, arguments),
        },
        start,
        reply: None,
        destination: Destination::Nowhere,
        header: (),
    })
}

/// A turn for the mailbox. Nobody waits for a tell, which has no slot.
#[inline]
pub(crate) fn waiting<F: Function>(
    arguments: F::Arguments,
    header: Header,
    slot: Option<Arc<Slot<F::Reply>>>,
) -> Pin<Box<dyn Turn<F::Actor>>> {
    let destination = slot.map_or(Destination::Nowhere, Destination::Local);
    envelope::<F>(arguments, header, destination)
}

/// A turn of a message from elsewhere.
pub fn received<F: Function>(
    message: Message,
    reply: Option<ReplyTo>,
) -> Result<Pin<Box<dyn Turn<F::Actor>>>, crate::Undecoded> {
    match codec::decode::<F::Arguments>(&message.body, "the arguments", F::NAME) {
        Ok(arguments) => {
            let destination = reply.map_or(Destination::Nowhere, Destination::Elsewhere);
            Ok(envelope::<F>(arguments, message.header, destination))
        }
        Err(why) => Err(crate::Undecoded {
            method: F::METHOD,
            why,
            reply,
        }),
    }
}

#[inline]
fn envelope<F: Function>(
    arguments: F::Arguments,
    header: Header,
    destination: Destination<F::Reply>,
) -> Pin<Box<dyn Turn<F::Actor>>> {
    // The annotation names what can't be written: the future that this function's `run` returns.
    #[inline]
    fn boxed<F: Function, Start, Running>(
        start: Start,
        arguments: F::Arguments,
        header: Header,
        destination: Destination<F::Reply>,
    ) -> Pin<Box<dyn Turn<F::Actor>>>
    where
        Start: Fn(Box<Body<F::Actor>>, F::Arguments) -> Running + Send + 'static,
        Running: Future<Output = (Box<Body<F::Actor>>, F::Reply)> + Send + 'static,
    {
        Box::pin(Envelope::<F, Start, Running, Option<Header>> {
            stage: Stage::Waiting { arguments },
            start,
            reply: None,
            destination,
            header: Some(header),
        })
    }
    boxed::<F, _, _>(F::run, arguments, header, destination)
}

/// What the caller of an inline turn needs of it besides [`Turn`], in the reply's own type.
pub(crate) trait InlineTurn<F: Function> {
    /// Takes the reply that the handler gave.
    fn take_reply(self: Pin<&mut Self>) -> F::Reply;

    /// The reply goes to a slot, because the caller can't have it at once.
    fn answer_at(self: Pin<&mut Self>, slot: Arc<Slot<F::Reply>>);
}

impl<F, Start, Running> InlineTurn<F> for Envelope<F, Start, Running, ()>
where
    F: Function,
{
    fn take_reply(self: Pin<&mut Self>) -> F::Reply {
        self.project().reply.take().expect("the handler has returned")
    }

    fn answer_at(self: Pin<&mut Self>, slot: Arc<Slot<F::Reply>>) {
        *self.project().destination = Destination::Local(slot);
    }
}

impl<F, Start, Running, C> Turn<F::Actor> for Envelope<F, Start, Running, C>
where
    F: Function,
    C: Carried,
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

    fn header(&self) -> Option<&Header> {
        self.header.get()
    }

    fn take_header(self: Pin<&mut Self>) -> Option<Header> {
        self.project().header.take()
    }

    fn is_abandoned(&self) -> bool {
        // The caller has the other end of the slot for as long as it waits.
        matches!(&self.destination, Destination::Local(slot) if Arc::strong_count(slot) == 1)
    }

    fn arguments_size(&self) -> u64 {
        match &self.stage {
            Stage::Waiting { arguments } => codec::encoded_size(arguments),
            Stage::Running { .. } | Stage::Finished => 0,
        }
    }

    fn start(self: Pin<&mut Self>, body: Box<Body<F::Actor>>) {
        let mut this = self.project();
        match this.stage.as_mut().project_replace(Stage::Finished) {
            StageOwned::Waiting { arguments } => this.stage.set(Stage::Running {
                future: (this.start)(body, arguments),
            }),
            StageOwned::Running { .. } | StageOwned::Finished => unreachable!("a turn starts once"),
        }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Body<F::Actor>>> {
        let mut this = self.project();
        match this.stage.as_mut().project() {
            StageProjection::Running { future } => future.poll(cx).map(|(mut body, reply)| {
                *this.reply = Some(reply);
                this.stage.set(Stage::Finished);
                body.changed |= !F::READ_ONLY;
                body
            }),
            StageProjection::Waiting { .. } | StageProjection::Finished => {
                unreachable!("only a running turn is polled")
            }
        }
    }

    fn reply(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(reply) = this.reply.take() else { return };
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

    fn encode(mut self: Pin<Box<Self>>, target: &ActorId) -> Option<(Message, Option<ReplySlot>)> {
        let this = self.as_mut().project();
        let arguments = match this.stage.project_replace(Stage::Finished) {
            StageOwned::Waiting { arguments } => arguments,
            StageOwned::Running { .. } | StageOwned::Finished => unreachable!("a turn that started stays here"),
        };
        let body = match codec::encode(&arguments, "the arguments", F::NAME) {
            Ok(body) => body,
            Err(why) => {
                self.as_mut().fail(CallError::Rejected(why));
                return None;
            }
        };
        let header = this.header.take().expect("a turn that has not started has its header");
        let reply = match this.destination.take() {
            Destination::Nowhere => None,
            Destination::Local(slot) => Some(ReplySlot::decoding::<F>(slot)),
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
}

/// Whether a deadline has passed.
pub fn expired(header: &Header, now: Time) -> bool {
    header.deadline.is_some_and(|deadline| deadline <= now)
}

//! The turn of one function.
//!
//! One allocation holds a call through all its stages: the arguments while it is in a mailbox, then the handler's
//! future, then the reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{ActorId, CallError, Message, Method};
use pin_project_lite::pin_project;

use crate::call_context::MessageContext;
use crate::codec;
use crate::function::Function;
use crate::host::Host;
use crate::instance::Instance;
use crate::invoke::drop_contained;
use crate::reply::{ReplyCell, ReplySender};
use crate::shared_instance::{Held, SharedInstance};
use crate::turn::Turn;

/// The destination of a reply.
pub(crate) enum Destination<R> {
    None,
    Local(Arc<ReplyCell<R>>),
    /// Boxed, because it is large and rare in comparison.
    Remote(Box<ReplySender>),
}

impl<R> Destination<R> {
    #[inline]
    fn take(&mut self) -> Self {
        std::mem::replace(self, Destination::None)
    }

    /// Sends an error instead of a reply.
    fn fail(self, error: CallError) {
        match self {
            Destination::None => {}
            Destination::Local(reply_cell) => reply_cell.complete(Err(error)),
            Destination::Remote(to) => to.complete(Err(error)),
        }
    }

    /// Whether the caller is gone: it shares the reply cell for as long as it waits.
    #[inline]
    fn is_abandoned(&self) -> bool {
        matches!(self, Destination::Local(reply_cell) if Arc::strong_count(reply_cell) == 1)
    }
}

pin_project! {
    #[project = StageProjection]
    #[project_replace = StageOwned]
    enum Stage<Arguments, Running, Reply> {
        Waiting { arguments: Arguments, message_context: Option<MessageContext> },
        Running { #[pin] future: Running },
        Finished { reply: Option<Reply> },
    }
}

pin_project! {
    /// The turn of one function. `Start` and `Running` are the unnameable types of the function's `run` and its future.
    pub(crate) struct Envelope<F: Function, Start, Running> {
        #[pin]
        stage: Stage<F::Arguments, Running, F::Reply>,
        start: Start,
        destination: Destination<F::Reply>,
    }
}

/// An inline turn, with its handler started.
#[inline]
pub(crate) fn running<F: Function>(held: F::Held, arguments: F::Arguments) -> InlineTurnBox<F> {
    let future = F::run(held, arguments);
    envelope::<F, _, _>(F::run, Stage::Running { future }, Destination::None)
}

/// A turn that has ended and whose reply can't be sent yet.
pub(crate) fn finished<F: Function>(
    reply: F::Reply,
    reply_cell: Arc<ReplyCell<F::Reply>>,
) -> Pin<Box<dyn Turn<F::Actor>>> {
    let stage = Stage::Finished { reply: Some(reply) };
    envelope::<F, _, _>(F::run, stage, Destination::Local(reply_cell))
}

/// The turn of a message received from another process.
pub fn received<F: Function>(
    message: Arc<Message>,
    reply: Option<Box<ReplySender>>,
) -> Result<Pin<Box<dyn Turn<F::Actor>>>, crate::Undecoded> {
    match codec::decode::<F::Arguments>(&message.body, "the arguments", F::NAME) {
        Ok(arguments) => {
            let destination = reply.map_or(Destination::None, Destination::Remote);
            Ok(waiting::<F>(arguments, MessageContext::received(message), destination))
        }
        Err(why) => Err(crate::Undecoded { why, reply }),
    }
}

/// The turn of a call or tell that has not started.
#[inline]
pub(crate) fn waiting<F: Function>(
    arguments: F::Arguments,
    message_context: MessageContext,
    destination: Destination<F::Reply>,
) -> Pin<Box<dyn Turn<F::Actor>>> {
    let message_context = Some(message_context);
    let stage = Stage::Waiting {
        arguments,
        message_context,
    };
    envelope::<F, _, _>(F::run, stage, destination)
}

/// The type parameters infer the unnameable future of the function's `run`.
#[inline]
fn envelope<F, Start, Running>(
    start: Start,
    stage: Stage<F::Arguments, Running, F::Reply>,
    destination: Destination<F::Reply>,
) -> InlineTurnBox<F>
where
    F: Function,
    Start: Fn(F::Held, F::Arguments) -> Running + Send + 'static,
    Running: Future<Output = (F::Held, F::Reply)> + Send + 'static,
{
    Box::pin(Envelope::<F, Start, Running> {
        stage,
        start,
        destination,
    })
}

/// A turn that runs on its caller's thread.
type InlineTurnBox<F> = Pin<Box<dyn InlineTurn<F>>>;

/// The typed interface of an inline turn to its caller.
pub(crate) trait InlineTurn<F: Function>: Turn<F::Actor> {
    /// Takes the handler's reply.
    fn take_reply(self: Pin<&mut Self>) -> F::Reply;

    /// Directs the reply to a cell, because the turn is suspended. Returns the cell.
    fn reply_to_cell(self: Pin<&mut Self>, caller: Option<&Waker>) -> Arc<ReplyCell<F::Reply>>;
}

impl<F, Start, Running> InlineTurn<F> for Envelope<F, Start, Running>
where
    F: Function,
    Start: Fn(F::Held, F::Arguments) -> Running + Send + 'static,
    Running: Future<Output = (F::Held, F::Reply)> + Send + 'static,
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

    fn reply_to_cell(self: Pin<&mut Self>, caller: Option<&Waker>) -> Arc<ReplyCell<F::Reply>> {
        let reply_cell = ReplyCell::new(caller);
        *self.project().destination = Destination::Local(reply_cell.clone());
        reply_cell
    }
}

impl<F, Start, Running> Turn<F::Actor> for Envelope<F, Start, Running>
where
    F: Function,
    Start: Fn(F::Held, F::Arguments) -> Running + Send + 'static,
    Running: Future<Output = (F::Held, F::Reply)> + Send + 'static,
{
    fn method(&self) -> Method {
        F::METHOD
    }

    fn read_only(&self) -> bool {
        F::READ_ONLY
    }

    fn shared(&self) -> bool {
        F::SHARED
    }

    fn may_wait(&self) -> bool {
        F::MAY_WAIT
    }

    fn share_instance(&self, instance: Box<Instance<F::Actor>>) -> SharedInstance {
        F::share(instance)
    }

    fn message_context(&self) -> Option<&MessageContext> {
        match &self.stage {
            Stage::Waiting { message_context, .. } => message_context.as_ref(),
            Stage::Running { .. } | Stage::Finished { .. } => None,
        }
    }

    fn open(self: Pin<&mut Self>) -> Option<MessageContext> {
        let this = self.project();
        match this.stage.project() {
            StageProjection::Waiting { message_context, .. } if !this.destination.is_abandoned() => {
                message_context.take()
            }
            _ => None,
        }
    }

    fn arguments_size(&self) -> u64 {
        match &self.stage {
            Stage::Waiting { arguments, .. } => codec::encoded_size(arguments),
            Stage::Running { .. } | Stage::Finished { .. } => 0,
        }
    }

    fn start(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<F::Actor>>>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let arguments = take_arguments(this.stage.as_mut());
        if !F::MAY_WAIT {
            let instance = instance.as_deref_mut().expect("a turn starts with its actor");
            let reply = Some(F::run_plain(&mut instance.state, arguments));
            this.stage.set(Stage::Finished { reply });
            instance.changed |= !F::READ_ONLY;
            return Poll::Ready(());
        }
        let held = F::Held::own(instance.take().expect("a turn starts with its actor"));
        let future = (this.start)(held, arguments);
        this.stage.set(Stage::Running { future });
        poll_stage::<F, _>(this.stage, instance, cx)
    }

    fn start_shared(self: Pin<&mut Self>, shared: &SharedInstance, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let arguments = take_arguments(this.stage.as_mut());
        if !F::MAY_WAIT {
            let reply = Some(read_plain::<F>(shared, arguments));
            this.stage.set(Stage::Finished { reply });
            return Poll::Ready(());
        }
        let future = (this.start)(F::Held::share(shared, F::READ_ONLY), arguments);
        this.stage.set(Stage::Running { future });
        poll_stage::<F, _>(this.stage, &mut None, cx)
    }

    fn poll(self: Pin<&mut Self>, instance: &mut Option<Box<Instance<F::Actor>>>, cx: &mut Context<'_>) -> Poll<()> {
        poll_stage::<F, _>(self.project().stage, instance, cx)
    }

    fn reply(self: Pin<&mut Self>) {
        let this = self.project();
        let StageProjection::Finished { reply } = this.stage.project() else {
            return;
        };
        let Some(reply) = reply.take() else { return };
        match this.destination.take() {
            // The drop of an unused reply is application code.
            Destination::None => drop_contained(reply),
            Destination::Local(reply_cell) => reply_cell.complete(Ok(reply)),
            Destination::Remote(to) => {
                to.complete(codec::encode(&reply, "the reply", F::NAME).map_err(CallError::Rejected));
            }
        }
    }

    fn fail(self: Pin<&mut Self>, error: CallError) {
        self.project().destination.take().fail(error);
    }

    fn encode(mut self: Pin<Box<Self>>, target: &ActorId, host: &dyn Host) -> Option<(Message, Option<ReplySender>)> {
        let this = self.as_mut().project();
        let nothing = Stage::Finished { reply: None };
        let StageOwned::Waiting {
            arguments,
            message_context,
        } = this.stage.project_replace(nothing)
        else {
            unreachable!("only a turn that has not started is encoded")
        };
        let body = match codec::encode(&arguments, "the arguments", F::NAME) {
            Ok(body) => body,
            Err(why) => {
                self.as_mut().fail(CallError::Rejected(why));
                return None;
            }
        };
        let message_context = message_context.expect("a turn that was not opened has its message context");
        let header = message_context.into_header(host);
        let reply = match this.destination.take() {
            Destination::None => None,
            Destination::Local(reply_cell) => Some(ReplySender::decoding::<F>(reply_cell, header.call)),
            Destination::Remote(to) => to.pass_on(),
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

/// Runs a handler that never waits on a shared instance.
fn read_plain<F: Function>(shared: &SharedInstance, arguments: F::Arguments) -> F::Reply {
    let state = &shared.instance::<F::Actor>().state;
    if F::READ_ONLY {
        return F::read_plain(state, arguments);
    }
    shared.begin_change();
    let reply = F::read_plain(state, arguments);
    shared.end_change();
    reply
}

/// Takes the arguments of a turn that is about to start.
#[inline]
fn take_arguments<Arguments, Running, Reply>(stage: Pin<&mut Stage<Arguments, Running, Reply>>) -> Arguments {
    match stage.project_replace(Stage::Finished { reply: None }) {
        StageOwned::Waiting { arguments, .. } => arguments,
        StageOwned::Running { .. } | StageOwned::Finished { .. } => unreachable!("a turn starts once"),
    }
}

/// Polls the handler.
#[inline]
fn poll_stage<F: Function, Running>(
    mut stage: Pin<&mut Stage<F::Arguments, Running, F::Reply>>,
    instance: &mut Option<Box<Instance<F::Actor>>>,
    cx: &mut Context<'_>,
) -> Poll<()>
where
    Running: Future<Output = (F::Held, F::Reply)>,
{
    let StageProjection::Running { future } = stage.as_mut().project() else {
        unreachable!("only a running turn is polled")
    };
    future.poll(cx).map(|(held, reply)| {
        stage.set(Stage::Finished { reply: Some(reply) });
        held.give_back(instance, F::READ_ONLY);
    })
}

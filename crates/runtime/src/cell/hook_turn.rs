//! A lifecycle hook as a turn, so that it runs exclusively and in order like any other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use elastin_actor::{Handlers, Hook, Host, Instance, MessageContext, ReplySender, Turn};
use elastin_types::{ActorId, CallError, Caller, Message, Method};

type HookRun<A> = Pin<Box<dyn Future<Output = Box<Instance<A>>> + Send>>;

/// A lifecycle hook that is due.
pub(crate) struct HookTurn<A> {
    hook: Hook,
    message_context: Option<MessageContext>,
    running: Option<HookRun<A>>,
}

impl<A: Handlers> HookTurn<A> {
    pub(crate) fn boxed(hook: Hook, actor: &ActorId) -> Pin<Box<dyn Turn<A>>> {
        Box::pin(Self {
            hook,
            message_context: Some(MessageContext::own(Caller::Actor(actor.clone()), actor.tenant)),
            running: None,
        })
    }
}

impl<A: Handlers> Turn<A> for HookTurn<A> {
    fn method(&self) -> Method {
        match self.hook {
            Hook::Activate => Method::of("on activate"),
            Hook::Deactivate => Method::of("on deactivate"),
            Hook::BeforeMove => Method::of("on before_move"),
            Hook::AfterMove => Method::of("on after_move"),
        }
    }

    fn hook(&self) -> Option<Hook> {
        Some(self.hook)
    }

    fn message_context(&self) -> Option<&MessageContext> {
        self.message_context.as_ref()
    }

    fn open(mut self: Pin<&mut Self>) -> Option<MessageContext> {
        self.message_context.take()
    }

    fn start(mut self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()> {
        let hook = self.hook;
        let mut own = instance.take().expect("a turn starts with its instance");
        self.running = Some(Box::pin(async move {
            if let Some(run) = own.state.hook(hook) {
                run.await;
            }
            own
        }));
        self.poll(instance, cx)
    }

    fn poll(mut self: Pin<&mut Self>, instance: &mut Option<Box<Instance<A>>>, cx: &mut Context<'_>) -> Poll<()> {
        let running = self.running.as_mut().expect("only a started turn is polled");
        running.as_mut().poll(cx).map(|mut own| {
            own.changed = true;
            *instance = Some(own);
        })
    }

    fn fail(self: Pin<&mut Self>, _error: CallError) {}

    fn encode(self: Pin<Box<Self>>, _target: &ActorId, _host: &dyn Host) -> Option<(Message, Option<ReplySender>)> {
        // A hook belongs to its activation and does not move.
        None
    }
}

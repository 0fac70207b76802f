//! A lifecycle hook as a turn, so that it is exclusive and in order like any other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use elastin_actor::{Body, Handlers, Hook, ReplySlot, Turn};
use elastin_types::{ActorId, CallError, CallId, Caller, ChainId, Header, Message, Method};

type HookRun<A> = Pin<Box<dyn Future<Output = Box<Body<A>>> + Send>>;

/// A lifecycle hook that is due.
pub(crate) struct HookTurn<A> {
    hook: Hook,
    header: Option<Header>,
    running: Option<HookRun<A>>,
}

impl<A: Handlers> HookTurn<A> {
    pub(crate) fn boxed(hook: Hook, actor: &ActorId, call: CallId) -> Pin<Box<dyn Turn<A>>> {
        let header = Header {
            call,
            chain: ChainId(call),
            caller: Caller::Actor(actor.clone()),
            tenant: actor.tenant,
            deadline: None,
            one_way: true,
            expected_cost: None,
            trace: None,
            source_time_ms: 0,
            context: None,
        };
        Box::pin(Self {
            hook,
            header: Some(header),
            running: None,
        })
    }
}

/// The function that a hook counts as in an actor's profile.
pub(crate) fn hook_method(hook: Hook) -> Method {
    match hook {
        Hook::Activate => Method::of("on activate"),
        Hook::Deactivate => Method::of("on deactivate"),
        Hook::BeforeMove => Method::of("on before_move"),
        Hook::AfterMove => Method::of("on after_move"),
    }
}

impl<A: Handlers> Turn<A> for HookTurn<A> {
    fn method(&self) -> Method {
        hook_method(self.hook)
    }

    fn read_only(&self) -> bool {
        false
    }

    fn hook(&self) -> Option<Hook> {
        Some(self.hook)
    }

    fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    fn take_header(mut self: Pin<&mut Self>) -> Option<Header> {
        self.header.take()
    }

    fn is_abandoned(&self) -> bool {
        false
    }

    fn arguments_size(&self) -> u64 {
        0
    }

    fn start(mut self: Pin<&mut Self>, mut body: Box<Body<A>>) {
        let hook = self.hook;
        self.running = Some(Box::pin(async move {
            if let Some(run) = body.state.hook(hook) {
                run.await;
            }
            body
        }));
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<Body<A>>> {
        let running = self.running.as_mut().expect("only a running turn is polled");
        running.as_mut().poll(cx).map(|mut body| {
            body.changed = true;
            body
        })
    }

    fn reply(self: Pin<&mut Self>) {}

    fn fail(self: Pin<&mut Self>, _error: CallError) {}

    fn encode(self: Pin<Box<Self>>, _target: &ActorId) -> Option<(Message, Option<ReplySlot>)> {
        // A hook belongs to its activation and does not travel.
        None
    }
}

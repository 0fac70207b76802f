//! Calls: what the methods of a reference give.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use elastin_types::{CallError, Time, TraceContext};

use crate::call_context::{AddedValues, NEVER};
use crate::function::Function;
use crate::host::WakeId;
use crate::invoke::{Begun, begin, post};
use crate::reference::RawRef;
use crate::reply::ReplyCell;
use crate::scope;
use crate::tell::Tell;

/// A call that is about to be made. Nothing has happened yet: `.await` it, or [`tell`](Call::tell) it.
///
/// It is an [`IntoFuture`], which `.await`, `tokio::join!`, `tokio::try_join!` and `tokio::select!` take as it is. What wants a
/// `Future`, such as `tokio::time::timeout`, gets it by `into_future()`.
#[must_use = "a call does nothing until it is awaited or told"]
pub struct Call<'a, F: Function> {
    pub(crate) target: &'a RawRef<F::Actor>,
    pub(crate) arguments: F::Arguments,
    pub(crate) wait_max: Option<Duration>,
    pub(crate) added: AddedValues,
}

impl<'a, F: Function> Call<'a, F> {
    /// A call of `F` on that actor.
    #[inline]
    pub fn new(target: &'a RawRef<F::Actor>, arguments: F::Arguments) -> Self {
        Self {
            target,
            arguments,
            wait_max: None,
            added: None,
        }
    }

    /// Waits at most so long, and no longer than the turn that makes the call may take itself.
    pub fn deadline(mut self, wait_max: Duration) -> Self {
        self.wait_max = Some(wait_max);
        self
    }

    /// Adds a value to the request context, which flows along with this call and the calls that come of it. Handlers read
    /// it with [`Ctx::request_value`](crate::Ctx::request_value).
    pub fn with_value(mut self, name: &str, value: &str) -> Self {
        let added = self.added.get_or_insert_default();
        added.values.push((name.into(), value.into()));
        self
    }

    /// Makes the call part of a trace, such as one that came with an HTTP request: the turn is a span below this place, and
    /// so on along the calls that come of it. Without it a call is part of the trace that the turn which makes it belongs to.
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.added.get_or_insert_default().trace = Some(trace);
        self
    }

    /// Sends without waiting for a reply; waits for room in the actor's mailbox, until the deadline (that of the node, if
    /// none is set).
    ///
    /// What one sender tells one actor arrives in order, also with calls in between. An actor that is not on this node has
    /// its mail taken at once. An idle actor whose turns are known to be brief runs it at once, on this thread, if the handler
    /// is a plain `fn`: that takes less time than to hand it over.
    #[inline]
    pub fn tell(self) -> Tell<'a, F> {
        Tell::new(self)
    }

    /// Sends without waiting for a reply or for room. It always takes the mailbox, so nothing of the actor runs within it.
    pub fn try_tell(self) -> Result<(), CallError> {
        post(self)
    }

    /// The target and the arguments, for a call that is made more than once.
    pub(crate) fn into_parts(self) -> (RawRef<F::Actor>, F::Arguments) {
        (self.target.clone(), self.arguments)
    }

    /// When the caller stops waiting.
    #[inline]
    pub(crate) fn ends(&self) -> Time {
        match self.wait_max {
            None => NEVER,
            // Without a process there is no clock, and the call will fail for that very reason.
            Some(wait_max) => self.target.host().map_or(NEVER, |host| host.now() + wait_max),
        }
    }
}

impl<'a, F: Function> IntoFuture for Call<'a, F> {
    type Output = F::Output;
    type IntoFuture = CallFuture<'a, F>;

    #[inline]
    fn into_future(self) -> CallFuture<'a, F> {
        CallFuture {
            stage: Stage::Made(self),
        }
    }
}

/// A call that is being made. Dropping it gives the call up: it does not run if it had not begun.
pub struct CallFuture<'a, F: Function> {
    stage: Stage<'a, F>,
}

enum Stage<'a, F: Function> {
    Made(Call<'a, F>),
    Waiting(Waiting<'a, F>),
    Over,
}

/// A call whose reply is not there yet.
struct Waiting<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    slot: Arc<ReplyCell<F::Reply>>,
    /// The turn has begun and waits, and this is who goes on with it.
    caller_resume: bool,
    /// [`NEVER`] if somebody else sees to it.
    deadline: Time,
    /// The deadline's timer, and the waker that it has.
    timer: Option<(WakeId, Waker)>,
}

// The future of the handler is in a box of its own; nothing in here is ever pinned.
impl<F: Function> Unpin for CallFuture<'_, F> {}

impl<F: Function> Future for CallFuture<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Stage::Waiting(waiting) = &mut self.stage {
            let outcome = std::task::ready!(waiting.poll(cx.waker()));
            self.stage = Stage::Over;
            return Poll::Ready(F::output(outcome));
        }
        if scope::wants_pause() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Stage::Made(call) = std::mem::replace(&mut self.stage, Stage::Over) else {
            panic!("a call is not polled again once it is over")
        };
        let target = call.target;
        let (slot, deadline, caller_resume) = match begin(call, cx.waker()) {
            Begun::Over(outcome) => return Poll::Ready(F::output(outcome)),
            Begun::Waiting(slot, deadline) => {
                let others_look = target.bound().keeps_deadlines() && !slot.waits_for_own();
                (slot, if others_look { NEVER } else { deadline }, false)
            }
            Begun::CallerResume(slot, deadline) => (slot, deadline, true),
        };
        let mut waiting = Waiting {
            target,
            slot,
            caller_resume,
            deadline,
            timer: None,
        };
        // Who answers knows whom to wake, also if the answer should be there by now.
        if deadline != NEVER
            && let Poll::Ready(outcome) = waiting.poll_deadline(cx.waker())
        {
            return Poll::Ready(F::output(outcome));
        }
        self.stage = Stage::Waiting(waiting);
        Poll::Pending
    }
}

impl<F: Function> Drop for CallFuture<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(waiting) = &self.stage {
            waiting.give_up();
        }
    }
}

impl<F: Function> Waiting<'_, F> {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<F::Reply, CallError>> {
        self.caller_resume = self.caller_resume && self.resume(waker);
        if !self.caller_resume
            && let Poll::Ready(answer) = self.slot.poll(waker)
        {
            return Poll::Ready(answer);
        }
        if self.deadline != NEVER {
            return self.poll_deadline(waker);
        }
        Poll::Pending
    }

    /// Goes on with the turn. Says whether it waits and may have to be gone on with again.
    fn resume(&self, waker: &Waker) -> bool {
        let Some(cell) = self.target.target() else { return false };
        scope::count_inline_call();
        scope::aside(|| cell.resume(scope::depth(), (self.slot.ticket(), waker)))
    }

    fn poll_deadline(&mut self, waker: &Waker) -> Poll<Result<F::Reply, CallError>> {
        if self.target.bound().now() >= self.deadline {
            self.give_up();
            return Poll::Ready(Err(CallError::DeadlineExceeded));
        }
        if !self.timer.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
            self.stop_timer();
            self.timer = Some((self.target.bound().wake_at(self.deadline, waker.clone()), waker.clone()));
        }
        Poll::Pending
    }

    /// Nobody waits for the reply any longer.
    fn give_up(&self) {
        if self.caller_resume
            && let Some(cell) = self.target.target()
        {
            cell.part(self.slot.ticket());
        }
        if let Some(call) = self.slot.close() {
            self.target.bound().give_up(call);
        }
    }

    fn stop_timer(&mut self) {
        if let Some((timer, _)) = self.timer.take() {
            self.target.bound().cancel_wake(timer);
        }
    }
}

impl<F: Function> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        self.stop_timer();
    }
}

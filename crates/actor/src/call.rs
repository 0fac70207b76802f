//! Calls, as returned by the methods of a reference.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use elastin_types::{CallError, Time, TraceContext};

use crate::call_context::{AddedValues, NEVER};
use crate::function::Function;
use crate::host::WakeId;
use crate::invoke::{FirstPoll, begin, post};
use crate::reference::RawRef;
use crate::reply::ReplyCell;
use crate::scope;
use crate::tell::Tell;

/// A call that is not started yet: `.await` it, or send it as a tell with [`tell`](Call::tell).
///
/// It is an [`IntoFuture`], which `.await`, `tokio::join!`, `tokio::try_join!` and `tokio::select!` accept. For
/// functions that require a `Future`, such as `tokio::time::timeout`, use `into_future()`.
#[must_use = "a call does nothing until it is awaited or sent with `tell`"]
pub struct Call<'a, F: Function> {
    pub(crate) target: &'a RawRef<F::Actor>,
    pub(crate) arguments: F::Arguments,
    pub(crate) wait_max: Option<Duration>,
    pub(crate) added: AddedValues,
}

impl<'a, F: Function> Call<'a, F> {
    /// A call of `F` on the actor.
    #[inline]
    pub fn new(target: &'a RawRef<F::Actor>, arguments: F::Arguments) -> Self {
        Self {
            target,
            arguments,
            wait_max: None,
            added: None,
        }
    }

    /// Sets a timeout. The call also ends at the deadline of the turn that makes it.
    pub fn deadline(mut self, wait_max: Duration) -> Self {
        self.wait_max = Some(wait_max);
        self
    }

    /// Adds a value to the request context, which propagates to this call and to calls made by its turn. Handlers read
    /// it with [`Ctx::request_value`](crate::Ctx::request_value).
    pub fn with_value(mut self, name: &str, value: &str) -> Self {
        let added = self.added.get_or_insert_default();
        added.values.push((name.into(), value.into()));
        self
    }

    /// Makes the call part of a trace, such as one received with an HTTP request. The turn becomes a child span of
    /// `trace` and propagates it to its own calls. By default a call belongs to the trace of the turn that makes it.
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.added.get_or_insert_default().trace = Some(trace);
        self
    }

    /// Sends the call as a tell, without a reply. Waits for room in the actor's mailbox until the deadline (the node's
    /// default, if none is set).
    ///
    /// Messages from one sender to one actor arrive in order, calls included. A tell to an actor on another node never
    /// waits for room. If the handler is a plain `fn` and the idle actor's turns are known to be short, the turn runs
    /// inline on this thread. That is cheaper than enqueueing it.
    #[inline]
    pub fn tell(self) -> Tell<'a, F> {
        Tell::new(self)
    }

    /// Sends the call as a tell, without waiting for room. It is always enqueued, so the actor never runs inline.
    pub fn try_tell(self) -> Result<(), CallError> {
        post(self)
    }

    /// The target and the arguments, for a call that is repeated.
    pub(crate) fn into_parts(self) -> (RawRef<F::Actor>, F::Arguments) {
        (self.target.clone(), self.arguments)
    }

    /// The deadline of the call's own timeout, or [`NEVER`].
    #[inline]
    pub(crate) fn ends(&self) -> Time {
        match self.wait_max {
            None => NEVER,
            // An unbound reference has no clock; its call is rejected for that reason.
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
            stage: Stage::NotStarted(self),
        }
    }
}

/// The future of a call. Dropping it abandons the call: a turn that has not started does not run.
pub struct CallFuture<'a, F: Function> {
    stage: Stage<'a, F>,
}

enum Stage<'a, F: Function> {
    NotStarted(Call<'a, F>),
    Pending(PendingCall<'a, F>),
    Done,
}

/// A call that waits for its reply.
struct PendingCall<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    reply_cell: Arc<ReplyCell<F::Reply>>,
    /// The turn is suspended, and this caller resumes it.
    caller_resume: bool,
    /// [`NEVER`] if the host enforces it.
    deadline: Time,
    /// The deadline's timer, and the waker registered with it.
    timer: Option<(WakeId, Waker)>,
}

// The handler's future has its own pinned box; nothing in here is pinned.
impl<F: Function> Unpin for CallFuture<'_, F> {}

impl<F: Function> Future for CallFuture<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Stage::Pending(pending) = &mut self.stage {
            let outcome = std::task::ready!(pending.poll(cx.waker()));
            self.stage = Stage::Done;
            return Poll::Ready(F::output(outcome));
        }
        if scope::should_yield() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Stage::NotStarted(call) = std::mem::replace(&mut self.stage, Stage::Done) else {
            panic!("a call is not polled again after it has ended")
        };
        let target = call.target;
        let (reply_cell, deadline, caller_resume) = match begin(call, cx.waker()) {
            FirstPoll::Ready(outcome) => return Poll::Ready(F::output(outcome)),
            FirstPoll::Pending(reply_cell, deadline) => {
                let host_keeps_deadline = target.bound().keeps_deadlines() && !reply_cell.awaits_local();
                (reply_cell, if host_keeps_deadline { NEVER } else { deadline }, false)
            }
            FirstPoll::CallerResumes(reply_cell, deadline) => (reply_cell, deadline, true),
        };
        let mut pending = PendingCall {
            target,
            reply_cell,
            caller_resume,
            deadline,
            timer: None,
        };
        // The waker is registered already, so a reply that arrived meanwhile has woken it.
        if deadline != NEVER
            && let Poll::Ready(outcome) = pending.poll_deadline(cx.waker())
        {
            return Poll::Ready(F::output(outcome));
        }
        self.stage = Stage::Pending(pending);
        Poll::Pending
    }
}

impl<F: Function> Drop for CallFuture<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Pending(pending) = &self.stage {
            pending.abandon();
        }
    }
}

impl<F: Function> PendingCall<'_, F> {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<F::Reply, CallError>> {
        self.caller_resume = self.caller_resume && self.resume(waker);
        if !self.caller_resume
            && let Poll::Ready(outcome) = self.reply_cell.poll(waker)
        {
            return Poll::Ready(outcome);
        }
        if self.deadline != NEVER {
            return self.poll_deadline(waker);
        }
        Poll::Pending
    }

    /// Resumes the suspended turn. Returns whether it is suspended again and this caller may have to resume it.
    fn resume(&self, waker: &Waker) -> bool {
        let Some(cell) = self.target.target() else { return false };
        scope::count_inline_call();
        scope::without_timing(|| cell.resume(self.reply_cell.ticket(), Some((scope::depth(), waker))))
    }

    fn poll_deadline(&mut self, waker: &Waker) -> Poll<Result<F::Reply, CallError>> {
        if self.target.bound().now() >= self.deadline {
            self.abandon();
            return Poll::Ready(Err(CallError::DeadlineExceeded));
        }
        if !self.timer.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
            self.stop_timer();
            self.timer = Some((self.target.bound().wake_at(self.deadline, waker.clone()), waker.clone()));
        }
        Poll::Pending
    }

    /// Stops waiting for the reply.
    fn abandon(&self) {
        if self.caller_resume
            && let Some(cell) = self.target.target()
        {
            cell.resume(self.reply_cell.ticket(), None);
        }
        if let Some(call) = self.reply_cell.close() {
            self.target.bound().give_up(call);
        }
    }

    fn stop_timer(&mut self) {
        if let Some((timer, _)) = self.timer.take() {
            self.target.bound().cancel_wake(timer);
        }
    }
}

impl<F: Function> Drop for PendingCall<'_, F> {
    fn drop(&mut self) {
        self.stop_timer();
    }
}

//! Tells: messages that nobody waits for.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use elastin_types::{CallError, Overloaded, Time};

use crate::call::Call;
use crate::call_context::NEVER;
use crate::envelope::{Destination, Payload, Post};
use crate::function::Function;
use crate::host::WakeId;
use crate::invoke::{dispatch_tell, may_run_told, message_context, run_told, run_told_late, waiting_deadline};
use crate::reference::RawRef;
use crate::scope;

/// A tell that waits for room.
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, F: Function> {
    /// Until it is made.
    call: Option<Call<'a, F>>,
    /// Boxed, because most find room at once, and a future is copied about.
    waiting: Option<Box<Waiting<'a, F>>>,
}

/// A tell that found the mailbox full.
struct Waiting<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    post: Post<F>,
    deadline: Time,
    timer: Option<WakeId>,
}

impl<'a, F: Function> Tell<'a, F> {
    #[inline]
    pub(crate) fn new(call: Call<'a, F>) -> Self {
        Self {
            call: Some(call),
            waiting: None,
        }
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let waiting = self
            .waiting
            .as_mut()
            .expect("a tell is not polled again once it is over");
        let outcome = std::task::ready!(waiting.poll(cx));
        self.waiting = None;
        Poll::Ready(outcome)
    }

    /// The mailbox is full.
    #[cold]
    fn wait(
        &mut self,
        target: &'a RawRef<F::Actor>,
        post: Post<F>,
        deadline: Time,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        let mut waiting = Waiting {
            target,
            post,
            deadline: waiting_deadline::<F>(target, deadline),
            timer: None,
        };
        let polled = waiting.poll_deadline(cx);
        if polled.is_pending() {
            self.waiting = Some(Box::new(waiting));
        }
        polled
    }
}

impl<F: Function> Unpin for Tell<'_, F> {}

impl<F: Function> Future for Tell<'_, F> {
    type Output = Result<(), CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.call.is_some() && scope::wants_pause() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(call) = self.call.take() else {
            return self.poll_waiting(cx);
        };
        let (target, deadline) = (call.target, call.ends());
        let Some(cell) = target.target() else {
            return Poll::Ready(dispatch_tell(call, deadline));
        };
        if may_run_told::<F>()
            && let Some(instance) = cell.try_begin_cheap(scope::depth())
        {
            run_told(&**cell, instance, call, deadline);
            return Poll::Ready(Ok(()));
        }
        let message_context = message_context::<F>(target, &call.arguments, deadline, call.added, true);
        let mut post = Post(Some(Payload {
            arguments: call.arguments,
            message_context,
            destination: Destination::Nowhere,
        }));
        match cell.post(&mut post, Some(cx.waker())) {
            Err(CallError::Overloaded(_)) => self.wait(target, post, deadline, cx),
            outcome => Poll::Ready(outcome),
        }
    }
}

impl<F: Function> Waiting<'_, F> {
    /// Looks whether there is room.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let cell = self.target.target().expect("the tell was made for a local cell");
        // Else it would be the mail for which all that is told after it waits.
        if may_run_told::<F>()
            && let Some(instance) = cell.try_begin_cheap(scope::depth())
        {
            run_told_late(&**cell, instance, self.post.take());
            return Poll::Ready(Ok(()));
        }
        match cell.post(&mut self.post, Some(cx.waker())) {
            Err(CallError::Overloaded(_)) => self.poll_deadline(cx),
            outcome => Poll::Ready(outcome),
        }
    }

    /// There is no room: waits on if there is time.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        if self.deadline == NEVER {
            return Poll::Pending;
        }
        let host = self.target.bound();
        if host.now() >= self.deadline {
            return Poll::Ready(Err(CallError::Overloaded(Overloaded::Actor)));
        }
        if self.timer.is_none() {
            self.timer = Some(host.wake_at(self.deadline, cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl<F: Function> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.target.bound().cancel_wake(timer);
        }
    }
}

//! Tells: one-way messages.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use elastin_types::{CallError, Overloaded, Time};

use crate::call::Call;
use crate::call_context::NEVER;
use crate::envelope::Destination;
use crate::function::Function;
use crate::host::{Start, WakeId};
use crate::invoke::{
    may_run_tell_inline, run_pending_tell, run_tell_inline, send_remote_tell, waiting, waiting_deadline,
};
use crate::reference::RawRef;
use crate::scope;
use crate::turn::Turn;

/// The future of a tell. It waits for room in the actor's mailbox.
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, F: Function> {
    /// `Some` until the first poll.
    call: Option<Call<'a, F>>,
    /// Boxed to keep the future small: most tells find room immediately.
    pending: Option<Box<PendingTell<'a, F>>>,
}

/// A tell that found the mailbox full.
struct PendingTell<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    /// `None` once it is enqueued.
    turn: Option<Pin<Box<dyn Turn<F::Actor>>>>,
    deadline: Time,
    timer: Option<WakeId>,
}

impl<'a, F: Function> Tell<'a, F> {
    #[inline]
    pub(crate) fn new(call: Call<'a, F>) -> Self {
        Self {
            call: Some(call),
            pending: None,
        }
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let pending = self
            .pending
            .as_mut()
            .expect("a tell is not polled again after it has ended");
        let outcome = std::task::ready!(pending.poll(cx));
        self.pending = None;
        Poll::Ready(outcome)
    }

    /// Waits for room in a full mailbox.
    #[cold]
    fn wait(
        &mut self,
        target: &'a RawRef<F::Actor>,
        turn: Pin<Box<dyn Turn<F::Actor>>>,
        deadline: Time,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        let mut pending = PendingTell {
            target,
            turn: Some(turn),
            deadline: waiting_deadline::<F>(target, deadline),
            timer: None,
        };
        let polled = pending.poll_deadline(cx);
        if polled.is_pending() {
            self.pending = Some(Box::new(pending));
        }
        polled
    }
}

impl<F: Function> Unpin for Tell<'_, F> {}

impl<F: Function> Future for Tell<'_, F> {
    type Output = Result<(), CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.call.is_some() && scope::should_yield() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(call) = self.call.take() else {
            return self.poll_pending(cx);
        };
        let (target, deadline) = (call.target, call.ends());
        let Some(cell) = target.target() else {
            return Poll::Ready(send_remote_tell(call, deadline));
        };
        if may_run_tell_inline::<F>()
            && let Some(instance) = cell.begin(Start::Tell, scope::depth())
        {
            run_tell_inline(&**cell, instance, call, deadline);
            return Poll::Ready(Ok(()));
        }
        let (turn, _) = waiting(call, deadline, Destination::None);
        match cell.post(turn, Some(cx.waker())) {
            Ok(()) => Poll::Ready(Ok(())),
            Err((CallError::Overloaded(_), turn)) => self.wait(target, turn, deadline, cx),
            Err((error, _)) => Poll::Ready(Err(error)),
        }
    }
}

impl<F: Function> PendingTell<'_, F> {
    /// Tries to enqueue the tell again.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let cell = self
            .target
            .target()
            .expect("only a tell to a local cell waits for room");
        let turn = self.turn.take().expect("a tell is not polled again after it has ended");
        // Run inline if possible: a queued tell would force all later tells through the mailbox.
        if may_run_tell_inline::<F>()
            && let Some(instance) = cell.begin(Start::Tell, scope::depth())
        {
            run_pending_tell::<F>(&**cell, instance, turn);
            return Poll::Ready(Ok(()));
        }
        match cell.post(turn, Some(cx.waker())) {
            Ok(()) => Poll::Ready(Ok(())),
            Err((CallError::Overloaded(_), turn)) => {
                self.turn = Some(turn);
                self.poll_deadline(cx)
            }
            Err((error, _)) => Poll::Ready(Err(error)),
        }
    }

    /// Keeps waiting for room until the deadline.
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

impl<F: Function> Drop for PendingTell<'_, F> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.target.bound().cancel_wake(timer);
        }
    }
}

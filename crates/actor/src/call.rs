//! Calls and tells: what the methods of a reference give.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use elastin_types::{CallError, Message, Rejected, Time};

use crate::Actor;
use crate::body::Body;
use crate::codec;
use crate::function::Function;
use crate::host::{Host, Refused, Target, WakeId};
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::scope::{self, AddedValues, Scope};
use crate::slot::{ReplySlot, Slot};
use crate::turn::{self, InlineTurn, Turn};

/// A call that is about to be made. Nothing has happened yet: `.await` it, or [`tell`](Call::tell) it.
#[must_use = "a call does nothing until it is awaited or told"]
pub struct Call<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    arguments: F::Arguments,
    deadline: Option<Duration>,
    added: AddedValues,
}

impl<'a, F: Function> Call<'a, F> {
    /// A call of `F` on that actor.
    pub fn new(target: &'a RawRef<F::Actor>, arguments: F::Arguments) -> Self {
        Self {
            target,
            arguments,
            deadline: None,
            added: None,
        }
    }

    /// Waits at most so long, and no longer than the turn that makes the call may take itself.
    pub fn deadline(mut self, wait_max: Duration) -> Self {
        self.deadline = Some(wait_max);
        self
    }

    /// Adds a value to the request context, which flows along with this call and the calls that come of it. Handlers read
    /// it with [`Ctx::request_value`](crate::Ctx::request_value).
    pub fn with_value(mut self, name: &str, value: &str) -> Self {
        self.added.get_or_insert_default().push((name.into(), value.into()));
        self
    }

    /// Sends without waiting for a reply; waits for room in the actor's mailbox, until the deadline if one is set.
    ///
    /// What one sender tells one actor arrives in order, also with calls in between. An actor that is not on this node has
    /// its mail taken at once.
    pub fn tell(self) -> Tell<'a, F> {
        Tell {
            target: self.target,
            arguments: Some((self.arguments, self.added)),
            turn: None,
            wait_max: self.deadline,
            deadline: None,
            timer: None,
        }
    }

    /// Sends without waiting for a reply or for room.
    pub fn try_tell(self) -> Result<(), CallError> {
        let host = bound(self.target);
        let deadline = self.deadline.map(|wait_max| host.now() + wait_max);
        post::<F>(self.target, self.arguments, deadline, self.added)
    }

    /// The target and the arguments, for a call that is made more than once.
    pub(crate) fn into_parts(self) -> (RawRef<F::Actor>, F::Arguments) {
        (self.target.clone(), self.arguments)
    }
}

impl<'a, F: Function> IntoFuture for Call<'a, F> {
    type Output = F::Output;
    type IntoFuture = CallFuture<'a, F>;

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
    Waiting(Waiting<'a, F::Reply>),
    Over,
}

/// A call whose reply is not there yet.
struct Waiting<'a, R> {
    slot: Arc<Slot<R>>,
    host: &'a Arc<dyn Host>,
    deadline: Option<Time>,
    /// The deadline's timer, and the waker that it has.
    timer: Option<(WakeId, Waker)>,
}

/// What the first poll of a call came to.
enum Begun<R> {
    Over(Result<R, CallError>),
    Waiting(Arc<Slot<R>>, Option<Time>),
}

// The future of the handler is in a box of its own; nothing in here is ever pinned.
impl<F: Function> Unpin for CallFuture<'_, F> {}

impl<F: Function> Future for CallFuture<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Made(call) => {
                let target = call.target;
                match begin(call) {
                    Begun::Over(outcome) => Poll::Ready(F::output(outcome)),
                    Begun::Waiting(slot, deadline) => self.wait(Waiting::new(slot, bound(target), deadline), cx),
                }
            }
            Stage::Waiting(waiting) => self.wait(waiting, cx),
            Stage::Over => panic!("a call is not polled again once it is over"),
        }
    }
}

impl<'a, F: Function> CallFuture<'a, F> {
    fn wait(&mut self, mut waiting: Waiting<'a, F::Reply>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match waiting.poll(cx.waker()) {
            Poll::Ready(outcome) => Poll::Ready(F::output(outcome)),
            Poll::Pending => {
                self.stage = Stage::Waiting(waiting);
                Poll::Pending
            }
        }
    }
}

impl<F: Function> Drop for CallFuture<'_, F> {
    fn drop(&mut self) {
        if let Stage::Waiting(waiting) = &self.stage {
            waiting.slot.close();
        }
    }
}

impl<'a, R> Waiting<'a, R> {
    fn new(slot: Arc<Slot<R>>, host: &'a Arc<dyn Host>, deadline: Option<Time>) -> Self {
        Self {
            slot,
            host,
            deadline,
            timer: None,
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<R, CallError>> {
        if let Poll::Ready(answer) = self.slot.poll(waker) {
            return Poll::Ready(answer);
        }
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        if self.host.now() >= deadline {
            self.slot.close();
            return Poll::Ready(Err(CallError::DeadlineExceeded));
        }
        if !self.timer.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
            self.stop_timer();
            self.timer = Some((self.host.wake_at(deadline, waker.clone()), waker.clone()));
        }
        Poll::Pending
    }

    fn stop_timer(&mut self) {
        if let Some((timer, _)) = self.timer.take() {
            self.host.cancel_wake(timer);
        }
    }
}

impl<R> Drop for Waiting<'_, R> {
    fn drop(&mut self) {
        self.stop_timer();
    }
}

/// A tell that waits for room.
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, F: Function> {
    target: &'a RawRef<F::Actor>,
    arguments: Option<(F::Arguments, AddedValues)>,
    /// The tell that found the mailbox full.
    turn: Option<Pin<Box<dyn Turn<F::Actor>>>>,
    wait_max: Option<Duration>,
    deadline: Option<Time>,
    timer: Option<WakeId>,
}

impl<F: Function> Drop for Tell<'_, F> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            bound(self.target).cancel_wake(timer);
        }
    }
}

impl<F: Function> Unpin for Tell<'_, F> {}

impl<F: Function> Future for Tell<'_, F> {
    type Output = Result<(), CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let target = self.target;
        if let Some((arguments, added)) = self.arguments.take() {
            let host = bound(target);
            self.deadline = self.wait_max.map(|wait_max| host.now() + wait_max);
            if target.target().is_none() {
                return Poll::Ready(post::<F>(target, arguments, self.deadline, added));
            }
            scope::record_call(target.id(), F::METHOD, || codec::encoded_size(&arguments));
            let header = scope::header(&**host, self.deadline, added, true);
            self.turn = Some(turn::waiting::<F>(arguments, header, None));
        }
        let turn = self.turn.take().expect("a tell is not polled again once it is over");
        let seat = target.target().expect("the tell was made for a local seat");
        match seat.enqueue(turn, Some(cx.waker())) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Refused {
                turn,
                why: CallError::Overloaded(_),
            }) if self.deadline.is_none_or(|deadline| bound(target).now() < deadline) => {
                self.turn = Some(turn);
                if let Some(deadline) = self.deadline
                    && self.timer.is_none()
                {
                    self.timer = Some(bound(target).wake_at(deadline, cx.waker().clone()));
                }
                Poll::Pending
            }
            Err(Refused { why, .. }) => Poll::Ready(Err(why)),
        }
    }
}

fn bound<A: Actor>(target: &RawRef<A>) -> &Arc<dyn Host> {
    target
        .host()
        .expect("a decoded reference is used within a turn, or bound with `Client::bind` first")
}

/// Makes a call: at once on this thread if the actor is idle, else through its mailbox or to its node.
fn begin<F: Function>(call: Call<'_, F>) -> Begun<F::Reply> {
    let Call {
        target,
        arguments,
        deadline,
        added,
    } = call;
    let deadline = deadline.map(|wait_max| bound(target).now() + wait_max);
    let Some(seat) = target.target() else {
        return dispatch::<F>(target, arguments, deadline, added);
    };
    match seat.begin(scope::depth()) {
        Some(body) => run_inline::<F>(&**seat, body, arguments, deadline, added),
        None if scope::is_inside(target.id()) => Begun::Over(Err(CallError::CallCycle)),
        None => queue::<F>(target, &**seat, arguments, deadline, added),
    }
}

/// Runs the turn of an idle actor on this thread.
fn run_inline<F: Function>(
    seat: &dyn Target<F::Actor>,
    mut body: Box<Body<F::Actor>>,
    arguments: F::Arguments,
    deadline: Option<Time>,
    added: AddedValues,
) -> Begun<F::Reply> {
    let waker = body.take_waker();
    Scope::enter_inline(&mut body, F::METHOD, deadline, added, || {
        codec::encoded_size(&arguments)
    });
    // A panic while the future is made can't happen: an async handler runs nothing before its first poll, and a plain one
    // is wrapped into such a future.
    let mut turn = turn::running::<F>(body, arguments);
    let mut cx = Context::from_waker(&waker);
    let polled = catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut cx)));
    let mut scope = Scope::leave();
    let mut body = match polled {
        Ok(Poll::Ready(body)) => body,
        Ok(Poll::Pending) => {
            scope.remember_caller();
            let deadline = scope.deadline();
            let slot = Slot::new();
            turn.as_mut().answer_at(slot.clone());
            seat.suspend(turn, scope, waker);
            return Begun::Waiting(slot, deadline);
        }
        Err(_) => {
            scope.abandon();
            // The state went down with the handler; only then may the actor start again.
            drop_quietly(turn);
            seat.panicked();
            return Begun::Over(Err(CallError::Panicked));
        }
    };
    let deadline = scope.deadline();
    scope.finish(&mut body, waker);
    if matches!(F::Actor::PERSIST, Persist::EachTurn) && !F::READ_ONLY {
        let slot = Slot::new();
        turn.as_mut().answer_at(slot.clone());
        seat.finish_saved(body, turn);
        return Begun::Waiting(slot, deadline);
    }
    seat.finish(body);
    if scope::depth() == 0 && !seat.may_reply() {
        let slot = Slot::new();
        turn.as_mut().answer_at(slot.clone());
        seat.hold_reply(turn);
        return Begun::Waiting(slot, deadline);
    }
    Begun::Over(Ok(turn.as_mut().take_reply()))
}

/// Drops what a panic left behind; a second panic in its drop is contained too.
fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// Puts a call into the mailbox.
fn queue<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    arguments: F::Arguments,
    deadline: Option<Time>,
    added: AddedValues,
) -> Begun<F::Reply> {
    scope::record_call(target.id(), F::METHOD, || codec::encoded_size(&arguments));
    let header = header::<F>(target, deadline, added);
    let deadline = header.deadline;
    let slot = Slot::new();
    let turn = turn::waiting::<F>(arguments, header, Some(slot.clone()));
    match seat.enqueue(turn, None) {
        Ok(()) => Begun::Waiting(slot, deadline),
        Err(Refused { why, .. }) => Begun::Over(Err(why)),
    }
}

/// The header of a call that has to wait: it gets the host's deadline if it has none.
fn header<F: Function>(target: &RawRef<F::Actor>, deadline: Option<Time>, added: AddedValues) -> elastin_types::Header {
    let host = bound(target);
    let mut header = scope::header(&**host, deadline, added, false);
    if header.deadline.is_none() {
        header.deadline = host.default_deadline().map(|wait_max| host.now() + wait_max);
    }
    header
}

/// Sends a call to an actor whose type this process does not know.
fn dispatch<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: F::Arguments,
    deadline: Option<Time>,
    added: AddedValues,
) -> Begun<F::Reply> {
    let header = header::<F>(target, deadline, added);
    let deadline = header.deadline;
    let slot = Slot::new();
    match send::<F>(target, arguments, header, Some(slot.clone())) {
        Ok(()) => Begun::Waiting(slot, deadline),
        Err(error) => Begun::Over(Err(error)),
    }
}

/// Tells without waiting for room.
fn post<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: F::Arguments,
    deadline: Option<Time>,
    added: AddedValues,
) -> Result<(), CallError> {
    let header = scope::header(&**bound(target), deadline, added, true);
    let Some(seat) = target.target() else {
        return send::<F>(target, arguments, header, None);
    };
    scope::record_call(target.id(), F::METHOD, || codec::encoded_size(&arguments));
    let turn = turn::waiting::<F>(arguments, header, None);
    seat.enqueue(turn, None).map_err(|refused| refused.why)
}

fn send<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: F::Arguments,
    header: elastin_types::Header,
    slot: Option<Arc<Slot<F::Reply>>>,
) -> Result<(), CallError> {
    if let Err(long) = target.id().key.check() {
        return Err(CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes }));
    }
    let body = codec::encode(&arguments, "the arguments", F::NAME).map_err(CallError::Rejected)?;
    scope::record_call(target.id(), F::METHOD, || body.len() as u64);
    let message = Message {
        target: target.id().clone(),
        header,
        method: F::METHOD,
        body,
    };
    let reply = slot.map(ReplySlot::decoding::<F>);
    bound(target).send(message, reply);
    Ok(())
}

//! Starts a call: inline on the caller's thread if the actor is idle, else through its mailbox or on its node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Message, Rejected, Time, Unknown};

use crate::Actor;
use crate::call::Call;
use crate::call_context::{MessageContext, NEVER};
use crate::codec;
use crate::envelope::{self, Destination};
use crate::function::Function;
use crate::host::{Finished, Invoke, Start};
use crate::instance::Instance;
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::reply::{ReplyCell, ReplySender};
use crate::scope::{self, Inside, Scope, TurnOwner};
use crate::shared_instance::{Held, SharedInstance};
use crate::turn::Turn;

/// Result of the first poll of a call.
pub(crate) enum FirstPoll<R> {
    Ready(Result<R, CallError>),
    /// The reply arrives in the cell before the deadline.
    Pending(Arc<ReplyCell<R>>, Time),
    /// Like `Pending`, but the caller may have to resume the turn.
    CallerResumes(Arc<ReplyCell<R>>, Time),
}

/// Starts a call.
#[inline]
pub(crate) fn begin<F: Function>(call: Call<'_, F>, waker: &Waker) -> FirstPoll<F::Reply> {
    let deadline = call.ends();
    let Some(cell) = call.target.target() else {
        return send_remote(call, deadline, waker);
    };
    match cell.begin(Start::Call, scope::depth()) {
        Some(instance) => run(&**cell, instance, call, deadline, waker),
        None => begin_busy(&**cell, call, deadline, waker),
    }
}

/// Runs the turn of an idle actor inline.
#[inline]
fn run<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    scope::count_inline_call();
    if !F::MAY_WAIT {
        let arguments = enter(call, TurnOwner::exclusive(&mut instance), deadline, false);
        run_plain::<F>(cell, instance, arguments, waker)
    } else if F::SHARED {
        run_shared(cell, instance, call, deadline, waker)
    } else {
        run_inline(cell, instance, call, deadline, waker)
    }
}

/// Starts a call to an actor that is not idle.
#[inline(never)]
fn begin_busy<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    match scope::inside(call.target.id()) {
        Inside::No => match scope::without_timing(|| cell.begin(Start::BusyCall, scope::depth())) {
            Some(instance) => run(cell, instance, call, deadline, waker),
            None => enqueue(cell, call, deadline, waker),
        },
        // It interleaves with the outer turn once that is suspended.
        Inside::Shared if F::SHARED => enqueue(cell, call, deadline, waker),
        Inside::Shared | Inside::Exclusive => FirstPoll::Ready(Err(CallError::CallCycle)),
    }
}

/// Runs the turn of an idle actor inline; its handler may wait.
#[inline]
fn run_inline<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let own_waker = instance.take_waker();
    let arguments = enter(call, TurnOwner::exclusive(&mut instance), deadline, false);
    // Creating the future can't panic: an async handler runs nothing before its first poll.
    let mut turn = envelope::running::<F>(F::Held::own(instance), arguments);
    let mut cx = Context::from_waker(&own_waker);
    let mut place = None;
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut place, &mut cx))) {
        Ok(Poll::Ready(())) => {}
        Ok(Poll::Pending) => {
            // A caller that resumes the turn takes the reply then and needs no wake-up.
            let reply_cell = turn.as_mut().reply_to_cell(None);
            let scope = leave_suspended();
            let deadline = scope.call_context.deadline;
            if cell.suspend(turn, scope, own_waker, (reply_cell.ticket(), waker)) {
                return FirstPoll::CallerResumes(reply_cell, deadline);
            }
            return match reply_cell.poll(waker) {
                Poll::Pending => FirstPoll::Pending(reply_cell, deadline),
                Poll::Ready(outcome) => FirstPoll::Ready(outcome),
            };
        }
        Err(_) => {
            drop(Scope::leave());
            // Drop the state, which the handler owns, before the actor may restart.
            drop_contained(turn);
            return panicked(cell);
        }
    }
    let mut instance = place.expect("a handler that has ended has returned its instance");
    let deadline = Scope::end(&mut instance, || F::METHOD);
    instance.restore_waker(own_waker);
    let reply = turn.as_mut().take_reply();
    conclude::<F>(cell, instance, reply, deadline, waker)
}

/// Runs the turn of an idle actor inline; its handler may wait and then shares the actor with other turns.
fn run_shared<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let shared = F::share(instance);
    let arguments = enter(call, TurnOwner::shared::<F::Actor>(&shared), deadline, false);
    let mut turn = envelope::running::<F>(F::Held::share(&shared, F::READ_ONLY), arguments);
    let mut cx = Context::from_waker(shared.instance::<F::Actor>().waker());
    let unshare = |shared: SharedInstance| match shared.give_back() {
        Ok(instance) => instance,
        Err(_) => unreachable!("no other turn begins before this one is suspended"),
    };
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx))) {
        Ok(Poll::Ready(())) => {
            let deadline = Scope::end_shared(&shared, || F::METHOD);
            let reply = turn.as_mut().take_reply();
            conclude::<F>(cell, unshare(shared), reply, deadline, waker)
        }
        Ok(Poll::Pending) => {
            let reply_cell = turn.as_mut().reply_to_cell(Some(waker));
            let scope = leave_suspended();
            let deadline = scope.call_context.deadline;
            cell.suspend_shared(shared, turn, scope);
            FirstPoll::Pending(reply_cell, deadline)
        }
        Err(_) => {
            drop(Scope::leave());
            drop_contained(turn);
            if !F::READ_ONLY {
                drop_contained(shared);
                return panicked(cell);
            }
            cell.panicked(false);
            cell.finish(unshare(shared));
            FirstPoll::Ready(Err(CallError::Panicked))
        }
    }
}

/// Leaves the scope of an inline turn that is suspended.
fn leave_suspended() -> Box<Scope> {
    let mut scope = Scope::leave();
    scope.detach_from_caller();
    scope
}

/// Runs a handler that never waits. Its scope must be entered.
// Always inlined, like `enter`: a call of either would be a good part of the time of an inline turn.
#[inline(always)]
fn run_plain<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    arguments: F::Arguments,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let Ok(reply) = catch_unwind(AssertUnwindSafe(|| F::run_plain(&mut instance.state, arguments))) else {
        return panicked_plain::<F>(cell, instance);
    };
    let deadline = Scope::end(&mut instance, || F::METHOD);
    instance.changed |= !F::READ_ONLY;
    conclude::<F>(cell, instance, reply, deadline, waker)
}

/// Whether a tell of this function may run inline on the sender's thread: it never waits, and needs no save before the
/// sender continues.
pub(crate) const fn may_run_tell_inline<F: Function>() -> bool {
    !F::MAY_WAIT && !matches!(F::Actor::PERSIST, Persist::EachTurn)
}

/// Runs a tell to an idle actor inline.
#[inline]
pub(crate) fn run_tell_inline<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
) {
    scope::count_inline_call();
    let arguments = enter(call, TurnOwner::exclusive(&mut instance), deadline, true);
    // The drop of the unused reply is application code.
    drop_contained(run_plain::<F>(cell, instance, arguments, Waker::noop()));
}

/// Runs a tell inline that was waiting for room in the mailbox.
pub(crate) fn run_pending_tell<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    mut turn: Pin<Box<dyn Turn<F::Actor>>>,
) {
    scope::count_inline_call();
    let message_context = turn.as_mut().open().expect("a tell that waits for room has not run");
    Scope::enter_message(TurnOwner::exclusive(&mut instance), message_context, || {
        turn.arguments_size()
    });
    let (mut place, mut cx) = (Some(instance), Context::from_waker(Waker::noop()));
    let ran = catch_unwind(AssertUnwindSafe(|| turn.as_mut().start(&mut place, &mut cx)));
    let mut instance = place.expect("a handler that never waits leaves the instance in place");
    if ran.is_err() {
        panicked_plain::<F>(cell, instance);
        return;
    }
    Scope::end(&mut instance, || F::METHOD);
    cell.finish(instance);
    turn.as_mut().reply();
}

/// Enters the scope of an inline turn; returns the arguments.
#[inline(always)]
fn enter<F: Function>(call: Call<'_, F>, owner: TurnOwner, deadline: Time, one_way: bool) -> F::Arguments {
    let Call {
        target,
        arguments,
        added,
        ..
    } = call;
    let size = || codec::encoded_size(&arguments);
    Scope::enter_inline(owner, || target.bound(), F::METHOD, deadline, added, one_way, size);
    arguments
}

/// Ends an inline turn: returns the instance and resolves the reply.
#[inline]
fn conclude<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) && instance.changed {
        let reply_cell = ReplyCell::new(Some(waker));
        cell.reply_later(envelope::finished::<F>(reply, reply_cell.clone()), Some(instance));
        return FirstPoll::Pending(reply_cell, deadline);
    }
    match cell.finish(instance) {
        Finished::Reply => FirstPoll::Ready(Ok(reply)),
        finished => withhold_reply::<F>(cell, finished, reply, deadline, waker),
    }
}

/// Handles a panic of a handler whose state was dropped.
#[cold]
fn panicked<A: Actor, R>(cell: &dyn Invoke<A>) -> FirstPoll<R> {
    cell.panicked(true);
    FirstPoll::Ready(Err(CallError::Panicked))
}

/// Handles a panic of a handler that never waits. A read-only handler leaves the activation intact.
#[cold]
fn panicked_plain<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
) -> FirstPoll<F::Reply> {
    if F::READ_ONLY {
        Scope::end(&mut instance, || F::METHOD);
        cell.panicked(false);
        cell.finish(instance);
        return FirstPoll::Ready(Err(CallError::Panicked));
    }
    drop(Scope::leave());
    // Drop the inconsistent state before the actor may restart.
    drop_contained(instance);
    panicked(cell)
}

/// Resolves the reply of a turn whose effects must stay invisible, for now or for good.
#[cold]
fn withhold_reply<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    finished: Finished,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    match finished {
        // A caller on this node is held back when it replies itself.
        Finished::Hold if scope::depth() == 0 => {
            let reply_cell = ReplyCell::new(Some(waker));
            cell.reply_later(envelope::finished::<F>(reply, reply_cell.clone()), None);
            FirstPoll::Pending(reply_cell, deadline)
        }
        Finished::Hold | Finished::Reply => FirstPoll::Ready(Ok(reply)),
        Finished::Lost => FirstPoll::Ready(Err(CallError::Unknown(Unknown::NodeLost))),
    }
}

/// Drops a value and contains a panic of its drop.
pub(crate) fn drop_contained<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// The message context of a call or tell.
#[inline]
fn message_context<F: Function>(call: &mut Call<'_, F>, deadline: Time, one_way: bool) -> MessageContext {
    let (host, callee, added) = (call.target.bound(), (call.target.id(), F::METHOD), call.added.take());
    scope::message_context(&**host, callee, deadline, added, one_way, || {
        codec::encoded_size(&call.arguments)
    })
}

/// The turn of a call or tell to be enqueued in a mailbox, and its deadline.
#[inline]
pub(crate) fn waiting<F: Function>(
    mut call: Call<'_, F>,
    deadline: Time,
    destination: Destination<F::Reply>,
) -> (Pin<Box<dyn Turn<F::Actor>>>, Time) {
    let one_way = matches!(destination, Destination::None);
    let message_context = message_context(&mut call, deadline, one_way);
    let deadline = message_context.deadline();
    (
        envelope::waiting::<F>(call.arguments, message_context, destination),
        deadline,
    )
}

/// The deadline of a call or tell that has to wait; without its own, the host's default applies.
#[inline]
pub(crate) fn waiting_deadline<F: Function>(target: &RawRef<F::Actor>, deadline: Time) -> Time {
    if deadline != NEVER {
        return deadline;
    }
    let host = target.bound();
    host.default_deadline().map_or(NEVER, |wait_max| host.now() + wait_max)
}

/// Enqueues a call in the mailbox.
#[inline(never)]
fn enqueue<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let reply_cell = ReplyCell::new(Some(waker));
    let (turn, deadline) = waiting(call, deadline, Destination::Local(reply_cell.clone()));
    match cell.post(turn, None) {
        Ok(()) => FirstPoll::Pending(reply_cell, deadline),
        Err((error, _)) => FirstPoll::Ready(Err(error)),
    }
}

/// Sends a call to an actor whose type is not registered in this process, such as any call of a client.
#[cold]
fn send_remote<F: Function>(call: Call<'_, F>, deadline: Time, waker: &Waker) -> FirstPoll<F::Reply> {
    let reply_cell = ReplyCell::new(None);
    let deadline = match send(call, deadline, Some(reply_cell.clone())) {
        Ok(deadline) => deadline,
        Err(error) => return FirstPoll::Ready(Err(error)),
    };
    // `send` may have busy-polled for the reply, so it can be there already.
    match reply_cell.poll(waker) {
        Poll::Pending => FirstPoll::Pending(reply_cell, deadline),
        Poll::Ready(outcome) => {
            scope::count_awaited_call();
            FirstPoll::Ready(outcome)
        }
    }
}

/// Sends a tell to an actor whose type is not registered in this process.
#[cold]
pub(crate) fn send_remote_tell<F: Function>(call: Call<'_, F>, deadline: Time) -> Result<(), CallError> {
    send(call, deadline, None).map(drop)
}

/// Enqueues a tell without waiting for room.
pub(crate) fn post<F: Function>(call: Call<'_, F>) -> Result<(), CallError> {
    let deadline = call.ends();
    let Some(cell) = call.target.target() else {
        return send_remote_tell(call, deadline);
    };
    let (turn, _) = waiting(call, deadline, Destination::None);
    cell.post(turn, None).map_err(|(error, _)| error)
}

/// Sends a call, or a tell without a reply cell, out of this process. Returns the deadline.
fn send<F: Function>(
    mut call: Call<'_, F>,
    deadline: Time,
    reply_cell: Option<Arc<ReplyCell<F::Reply>>>,
) -> Result<Time, CallError> {
    let target = call.target;
    let Some(host) = target.host() else {
        return Err(CallError::Rejected(Rejected::Unbound(F::Actor::NAME.to_owned())));
    };
    let deadline = match reply_cell {
        Some(_) => waiting_deadline::<F>(target, deadline),
        None => deadline,
    };
    let message_context = message_context(&mut call, deadline, reply_cell.is_none());
    let deadline = message_context.deadline();
    if let Err(long) = target.id().key.check() {
        return Err(CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes }));
    }
    let body = codec::encode(&call.arguments, "the arguments", F::NAME).map_err(CallError::Rejected)?;
    let header = message_context.into_header(&**host);
    let reply = reply_cell.map(|reply_cell| ReplySender::decoding::<F>(reply_cell, header.call));
    let message = Message {
        target: target.id().clone(),
        header,
        method: F::METHOD,
        body,
    };
    host.send(Arc::new(message), reply);
    Ok(deadline)
}

//! Starts a call: inline on the caller's thread if the actor is idle, else through its mailbox or on its node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Message, Rejected, Time, Unknown};

use crate::Actor;
use crate::call::Call;
use crate::call_context::{AddedValues, MessageContext, NEVER};
use crate::codec;
use crate::envelope::{self, Destination, Payload, PostedCall};
use crate::function::Function;
use crate::host::{Finished, Invoke, Ticket};
use crate::instance::Instance;
use crate::invoke_shared;
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::reply::{ReplyCell, ReplySender};
use crate::scope::{self, InlineCall, Inside, Scope, TurnOwner};
use crate::shared_instance::Held;
use crate::turn::Turn;
use crate::turn_pool;

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
    let target = call.target;
    let Some(cell) = target.target() else {
        return send_remote(call, deadline, waker);
    };
    match cell.begin(scope::depth()) {
        Some(instance) => run(target, &**cell, instance, call, deadline, waker),
        None => begin_busy(target, &**cell, call, deadline, waker),
    }
}

/// Runs the turn of an idle actor inline.
#[inline]
fn run<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    scope::count_inline_call();
    if !F::MAY_WAIT {
        run_plain(target, cell, instance, call, deadline, waker)
    } else if F::SHARED {
        invoke_shared::run(target, cell, instance, call, deadline, waker)
    } else {
        run_inline(target, cell, instance, call, deadline, waker)
    }
}

/// Starts a call to an actor that is not idle.
#[inline(never)]
fn begin_busy<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    match scope::inside(target.id()) {
        Inside::No => match scope::without_timing(|| cell.try_begin_spinning(scope::depth())) {
            Some(instance) => run(target, cell, instance, call, deadline, waker),
            None => enqueue(cell, call, deadline, waker),
        },
        Inside::Interleaved(shared) if F::SHARED => invoke_shared::join(target, cell, shared, call, deadline, waker),
        Inside::Interleaved(_) | Inside::Exclusive => FirstPoll::Ready(Err(CallError::CallCycle)),
    }
}

/// Runs the turn of an idle actor inline; its handler may wait.
#[inline]
fn run_inline<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let Call { arguments, added, .. } = call;
    let own_waker = instance.take_waker();
    Scope::enter_inline(
        TurnOwner::exclusive(&mut instance),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    // Creating the future can't panic: an async handler runs nothing before its first poll.
    let mut turn = envelope::running::<F>(F::Held::own(instance), arguments);
    let mut cx = Context::from_waker(&own_waker);
    let mut place = None;
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut place, &mut cx))) {
        Ok(Poll::Ready(())) => {}
        Ok(Poll::Pending) => {
            let caller_resumes = cell.caller_resumes();
            // A caller that resumes the turn takes the reply then and needs no wake-up.
            let reply_cell = turn.as_mut().reply_to_cell(Some(waker).filter(|_| !caller_resumes));
            let deadline = suspend(
                cell,
                turn,
                own_waker,
                caller_resumes.then(|| (reply_cell.ticket(), waker)),
            );
            return match caller_resumes {
                true => FirstPoll::CallerResumes(reply_cell, deadline),
                false => FirstPoll::Pending(reply_cell, deadline),
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
    turn_pool::keep(turn);
    conclude::<F>(cell, instance, reply, deadline, waker)
}

/// Runs the turn of an idle actor inline; its handler never waits.
#[inline]
fn run_plain<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let Call { arguments, added, .. } = call;
    Scope::enter_inline(
        TurnOwner::exclusive(&mut instance),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
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
    let Call {
        target,
        arguments,
        added,
        ..
    } = call;
    Scope::enter_inline(
        TurnOwner::exclusive(&mut instance),
        || target.bound(),
        inline::<F>(deadline, added, true),
        || codec::encoded_size(&arguments),
    );
    run_tell_handler::<F>(cell, instance, arguments);
}

/// Runs a tell inline that was waiting for room in the mailbox.
pub(crate) fn run_pending_tell<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    payload: Payload<F>,
) {
    scope::count_inline_call();
    let Payload {
        arguments,
        message_context,
        ..
    } = payload;
    Scope::enter_message(&mut instance, message_context, || codec::encoded_size(&arguments));
    run_tell_handler::<F>(cell, instance, arguments);
}

/// Runs the handler of a tell. Its scope must be entered.
#[inline]
fn run_tell_handler<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    arguments: F::Arguments,
) {
    // The unused reply is dropped inside `catch_unwind`, because its drop is application code too.
    let run = || drop(F::run_plain(&mut instance.state, arguments));
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        panicked_plain::<F>(cell, instance);
        return;
    }
    Scope::end(&mut instance, || F::METHOD);
    instance.changed |= !F::READ_ONLY;
    cell.finish(instance);
}

/// Describes an inline turn of this function.
#[inline]
pub(crate) fn inline<F: Function>(deadline: Time, added: AddedValues, one_way: bool) -> InlineCall {
    InlineCall {
        method: F::METHOD,
        deadline,
        added,
        one_way,
    }
}

/// Ends an inline turn: returns the instance and resolves the reply.
#[inline]
pub(crate) fn conclude<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) && instance.changed {
        let reply_cell = ReplyCell::new(Some(waker));
        cell.finish_saved(instance, envelope::finished::<F>(reply, reply_cell.clone()));
        return FirstPoll::Pending(reply_cell, deadline);
    }
    match cell.finish(instance) {
        Finished::Reply => FirstPoll::Ready(Ok(reply)),
        finished => withhold_reply::<F>(cell, finished, reply, deadline, waker),
    }
}

/// Suspends an inline turn. Returns the deadline.
fn suspend<A: Actor>(
    cell: &dyn Invoke<A>,
    turn: Pin<Box<dyn Turn<A>>>,
    waker: Arc<Waker>,
    caller: Option<(Ticket, &Waker)>,
) -> Time {
    let mut scope = Scope::leave();
    scope.detach_from_caller();
    let deadline = scope.deadline();
    cell.suspend(turn, scope, waker, caller);
    deadline
}

#[cold]
pub(crate) fn panicked<A: Actor, R>(cell: &dyn Invoke<A>) -> FirstPoll<R> {
    cell.count_panic();
    cell.lost();
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
        cell.count_panic();
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
pub(crate) fn withhold_reply<F: Function>(
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
            cell.hold_reply(envelope::finished::<F>(reply, reply_cell.clone()));
            FirstPoll::Pending(reply_cell, deadline)
        }
        Finished::Hold | Finished::Reply => FirstPoll::Ready(Ok(reply)),
        Finished::Lost => FirstPoll::Ready(Err(CallError::Unknown(Unknown::NodeLost))),
        Finished::Broken => FirstPoll::Ready(Err(CallError::Panicked)),
    }
}

/// Drops a value and contains a panic of its drop.
pub(crate) fn drop_contained<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// The message context for a call or tell of this function.
#[inline]
pub(crate) fn message_context<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: &F::Arguments,
    deadline: Time,
    added: AddedValues,
    one_way: bool,
) -> MessageContext {
    let callee = (target.id(), F::METHOD);
    scope::message_context(&**target.bound(), callee, deadline, added, one_way, || {
        codec::encoded_size(arguments)
    })
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
pub(crate) fn enqueue<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = message_context.deadline();
    let reply_cell = ReplyCell::new(Some(waker));
    let mut post = PostedCall::<F>(Some(Payload {
        arguments: call.arguments,
        message_context,
        destination: Destination::Local(reply_cell.clone()),
    }));
    match cell.post(&mut post, None) {
        Ok(()) => FirstPoll::Pending(reply_cell, deadline),
        Err(why) => FirstPoll::Ready(Err(why)),
    }
}

/// Sends a call to an actor whose type is not registered in this process, such as any call of a client.
#[cold]
fn send_remote<F: Function>(call: Call<'_, F>, deadline: Time, waker: &Waker) -> FirstPoll<F::Reply> {
    if let Err(error) = check_bound::<F>(call.target) {
        return FirstPoll::Ready(Err(error));
    }
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = message_context.deadline();
    let reply_cell = ReplyCell::new(None);
    if let Err(error) = send::<F>(call.target, call.arguments, message_context, Some(reply_cell.clone())) {
        return FirstPoll::Ready(Err(error));
    }
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
    check_bound::<F>(call.target)?;
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, true);
    send::<F>(call.target, call.arguments, message_context, None)
}

/// Enqueues a tell without waiting for room.
pub(crate) fn post<F: Function>(call: Call<'_, F>) -> Result<(), CallError> {
    let deadline = call.ends();
    let Some(cell) = call.target.target() else {
        return send_remote_tell(call, deadline);
    };
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, true);
    let mut post = PostedCall::<F>(Some(Payload {
        arguments: call.arguments,
        message_context,
        destination: Destination::None,
    }));
    cell.post(&mut post, None)
}

/// Rejects calls through a reference without a host.
fn check_bound<F: Function>(target: &RawRef<F::Actor>) -> Result<(), CallError> {
    match target.host() {
        Some(_) => Ok(()),
        None => Err(CallError::Rejected(Rejected::Unbound(F::Actor::NAME.to_owned()))),
    }
}

fn send<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: F::Arguments,
    message_context: MessageContext,
    reply_cell: Option<Arc<ReplyCell<F::Reply>>>,
) -> Result<(), CallError> {
    if let Err(long) = target.id().key.check() {
        return Err(CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes }));
    }
    let body = codec::encode(&arguments, "the arguments", F::NAME).map_err(CallError::Rejected)?;
    let host = target.bound();
    let header = message_context.into_header(&**host);
    let reply = reply_cell.map(|reply_cell| ReplySender::decoding::<F>(reply_cell, header.call));
    let message = Message {
        target: target.id().clone(),
        header,
        method: F::METHOD,
        body,
    };
    host.send(Arc::new(message), reply);
    Ok(())
}

//! How a call begins: at once on the caller's thread if the actor is idle, else through its mailbox or to its node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Message, Rejected, Time, Unknown};

use crate::Actor;
use crate::call::Call;
use crate::call_context::{AddedValues, MessageContext, NEVER};
use crate::codec;
use crate::envelope::{self, Destination, Payload, Post};
use crate::function::Function;
use crate::host::{Finished, Invoke, Ticket};
use crate::instance::Instance;
use crate::invoke_shared;
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::reply::{ReplyCell, ReplySender};
use crate::scope::{self, Inline, Inside, Scope, Whose};
use crate::shared_instance::Held;
use crate::turn::Turn;
use crate::turn_pool;

/// What the first poll of a call came to.
pub(crate) enum Begun<R> {
    Over(Result<R, CallError>),
    /// The reply comes to the slot, until a time.
    Waiting(Arc<ReplyCell<R>>, Time),
    /// The same, and the caller may have to go on with the turn.
    CallerResume(Arc<ReplyCell<R>>, Time),
}

/// Makes a call.
#[inline]
pub(crate) fn begin<F: Function>(call: Call<'_, F>, waker: &Waker) -> Begun<F::Reply> {
    let deadline = call.ends();
    let target = call.target;
    let Some(cell) = target.target() else {
        return dispatch(call, deadline, waker);
    };
    match cell.begin(scope::depth()) {
        Some(instance) => run(target, &**cell, instance, call, deadline, waker),
        None => begin_busy(target, &**cell, call, deadline, waker),
    }
}

/// Runs the turn of an idle actor on this thread.
#[inline]
fn run<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    scope::count_inline_call();
    if !F::MAY_WAIT {
        run_plain(target, cell, instance, call, deadline, waker)
    } else if F::SHARED {
        invoke_shared::run(target, cell, instance, call, deadline, waker)
    } else {
        run_inline(target, cell, instance, call, deadline, waker)
    }
}

/// Makes a call to an actor that is not idle.
#[inline(never)]
fn begin_busy<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    match scope::inside(target.id()) {
        Inside::No => match scope::aside(|| cell.try_begin_spinning(scope::depth())) {
            Some(instance) => run(target, cell, instance, call, deadline, waker),
            None => queue(cell, call, deadline, waker),
        },
        Inside::Interleaved(shared) if F::SHARED => invoke_shared::join(target, cell, shared, call, deadline, waker),
        Inside::Interleaved(_) | Inside::Alone => Begun::Over(Err(CallError::CallCycle)),
    }
}

/// Runs the turn of an idle actor on this thread; its handler may wait.
#[inline]
fn run_inline<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let Call { arguments, added, .. } = call;
    let own_waker = instance.take_waker();
    Scope::enter_inline(
        Whose::alone(&mut instance),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    // A panic while the future is made can't happen: an async handler runs nothing before its first poll.
    let mut turn = envelope::running::<F>(F::Held::own(instance), arguments);
    let mut cx = Context::from_waker(&own_waker);
    let mut place = None;
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut place, &mut cx))) {
        Ok(Poll::Ready(())) => {}
        Ok(Poll::Pending) => {
            let caller_resumes = cell.caller_resumes();
            // A caller that goes on with the turn hears of the reply that way.
            let slot = turn.as_mut().answer_later(Some(waker).filter(|_| !caller_resumes));
            let deadline = suspend(cell, turn, own_waker, caller_resumes.then(|| (slot.ticket(), waker)));
            return match caller_resumes {
                true => Begun::CallerResume(slot, deadline),
                false => Begun::Waiting(slot, deadline),
            };
        }
        Err(_) => {
            drop(Scope::leave());
            // The state went down with the handler; only then may the actor start again.
            drop_quietly(turn);
            return panicked(cell);
        }
    }
    let mut instance = place.expect("a handler that is over has given its actor back");
    let deadline = Scope::end(&mut instance, || F::METHOD);
    instance.restore_waker(own_waker);
    let reply = turn.as_mut().take_reply();
    turn_pool::keep(turn);
    conclude::<F>(cell, instance, reply, deadline, waker)
}

/// Runs the turn of an idle actor on this thread; its handler never waits.
#[inline]
fn run_plain<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let Call { arguments, added, .. } = call;
    Scope::enter_inline(
        Whose::alone(&mut instance),
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

/// Whether a tell of this function may run on the teller's thread: it never waits, and nothing is to be saved before its sender
/// may know of it.
pub(crate) const fn may_run_told<F: Function>() -> bool {
    !F::MAY_WAIT && !matches!(F::Actor::PERSIST, Persist::EachTurn)
}

/// Runs what was told to an idle actor on this thread.
#[inline]
pub(crate) fn run_told<F: Function>(
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
        Whose::alone(&mut instance),
        || target.bound(),
        inline::<F>(deadline, added, true),
        || codec::encoded_size(&arguments),
    );
    run_told_handler::<F>(cell, instance, arguments);
}

/// The same for what has waited for room in its mailbox.
pub(crate) fn run_told_late<F: Function>(
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
    run_told_handler::<F>(cell, instance, arguments);
}

/// Runs the handler of what was told, whose scope is entered.
#[inline]
fn run_told_handler<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    mut instance: Box<Instance<F::Actor>>,
    arguments: F::Arguments,
) {
    // The reply that nobody wants is dropped inside, because that runs the application's code too.
    let run = || drop(F::run_plain(&mut instance.state, arguments));
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        panicked_plain::<F>(cell, instance);
        return;
    }
    Scope::end(&mut instance, || F::METHOD);
    instance.changed |= !F::READ_ONLY;
    cell.finish(instance);
}

/// A turn of this function that begins on the caller's thread.
#[inline]
pub(crate) fn inline<F: Function>(deadline: Time, added: AddedValues, one_way: bool) -> Inline {
    Inline {
        method: F::METHOD,
        deadline,
        added,
        one_way,
    }
}

/// The turn is over: gives the actor back, and the reply to whom it belongs.
#[inline]
pub(crate) fn conclude<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) && instance.changed {
        let slot = ReplyCell::new(Some(waker));
        cell.finish_saved(instance, envelope::finished::<F>(reply, slot.clone()));
        return Begun::Waiting(slot, deadline);
    }
    match cell.finish(instance) {
        Finished::Reply => Begun::Over(Ok(reply)),
        finished => reply_unusually::<F>(cell, finished, reply, deadline, waker),
    }
}

/// The turn waits for something, and so does its caller. Gives the deadline.
fn suspend<A: Actor>(
    cell: &dyn Invoke<A>,
    turn: Pin<Box<dyn Turn<A>>>,
    waker: Arc<Waker>,
    caller: Option<(Ticket, &Waker)>,
) -> Time {
    let mut scope = Scope::leave();
    scope.part_from_caller();
    let deadline = scope.deadline();
    cell.suspend(turn, scope, waker, caller);
    deadline
}

#[cold]
pub(crate) fn panicked<A: Actor, R>(cell: &dyn Invoke<A>) -> Begun<R> {
    cell.count_panic();
    cell.lost();
    Begun::Over(Err(CallError::Panicked))
}

/// A handler that never waits panicked. An actor that it only read goes on.
#[cold]
fn panicked_plain<F: Function>(cell: &dyn Invoke<F::Actor>, mut instance: Box<Instance<F::Actor>>) -> Begun<F::Reply> {
    if F::READ_ONLY {
        Scope::end(&mut instance, || F::METHOD);
        cell.count_panic();
        cell.finish(instance);
        return Begun::Over(Err(CallError::Panicked));
    }
    drop(Scope::leave());
    // What the handler left behind is nobody's; only then may the actor start again.
    drop_quietly(instance);
    panicked(cell)
}

/// The turn is over but its node must not show it: now, or at all.
#[cold]
pub(crate) fn reply_unusually<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    finished: Finished,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    match finished {
        // A caller within the node is held back itself when it comes to reply.
        Finished::Hold if scope::depth() == 0 => {
            let slot = ReplyCell::new(Some(waker));
            cell.hold_reply(envelope::finished::<F>(reply, slot.clone()));
            Begun::Waiting(slot, deadline)
        }
        Finished::Hold | Finished::Reply => Begun::Over(Ok(reply)),
        Finished::Lost => Begun::Over(Err(CallError::Unknown(Unknown::NodeLost))),
        Finished::Broken => Begun::Over(Err(CallError::Panicked)),
    }
}

/// Drops what a panic left behind; a second panic in its drop is contained too.
pub(crate) fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// What a message of this function carries.
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

/// When a call or tell that has to wait ends: at the host's deadline if it has none.
#[inline]
pub(crate) fn waiting_deadline<F: Function>(target: &RawRef<F::Actor>, deadline: Time) -> Time {
    if deadline != NEVER {
        return deadline;
    }
    let host = target.bound();
    host.default_deadline().map_or(NEVER, |wait_max| host.now() + wait_max)
}

/// Puts a call into the mailbox.
#[inline(never)]
pub(crate) fn queue<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = message_context.deadline();
    let slot = ReplyCell::new(Some(waker));
    let mut post = Post::<F>(Some(Payload {
        arguments: call.arguments,
        message_context,
        destination: Destination::Local(slot.clone()),
    }));
    match cell.post(&mut post, None) {
        Ok(()) => Begun::Waiting(slot, deadline),
        Err(why) => Begun::Over(Err(why)),
    }
}

/// Sends a call to an actor whose type this process does not know.
#[cold]
fn dispatch<F: Function>(call: Call<'_, F>, deadline: Time, waker: &Waker) -> Begun<F::Reply> {
    if let Err(error) = check_bound::<F>(call.target) {
        return Begun::Over(Err(error));
    }
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = message_context.deadline();
    let slot = ReplyCell::new(None);
    if let Err(error) = send::<F>(call.target, call.arguments, message_context, Some(slot.clone())) {
        return Begun::Over(Err(error));
    }
    // Whoever sends it may have waited for the reply for a moment.
    match slot.poll(waker) {
        Poll::Pending => Begun::Waiting(slot, deadline),
        Poll::Ready(answer) => {
            scope::count_awaited_call();
            Begun::Over(answer)
        }
    }
}

/// Tells an actor whose type this process does not know.
#[cold]
pub(crate) fn dispatch_tell<F: Function>(call: Call<'_, F>, deadline: Time) -> Result<(), CallError> {
    check_bound::<F>(call.target)?;
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, true);
    send::<F>(call.target, call.arguments, message_context, None)
}

/// Tells without waiting for room.
pub(crate) fn post<F: Function>(call: Call<'_, F>) -> Result<(), CallError> {
    let deadline = call.ends();
    let Some(cell) = call.target.target() else {
        return dispatch_tell(call, deadline);
    };
    let message_context = message_context::<F>(call.target, &call.arguments, deadline, call.added, true);
    let mut post = Post::<F>(Some(Payload {
        arguments: call.arguments,
        message_context,
        destination: Destination::Nowhere,
    }));
    cell.post(&mut post, None)
}

/// Whether the reference says which process its calls go through.
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
    slot: Option<Arc<ReplyCell<F::Reply>>>,
) -> Result<(), CallError> {
    if let Err(long) = target.id().key.check() {
        return Err(CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes }));
    }
    let body = codec::encode(&arguments, "the arguments", F::NAME).map_err(CallError::Rejected)?;
    let host = target.bound();
    let header = message_context.into_header(&**host);
    let reply = slot.map(|slot| ReplySender::decoding::<F>(slot, header.call));
    let message = Message {
        target: target.id().clone(),
        header,
        method: F::METHOD,
        body,
    };
    host.send(Arc::new(message), reply);
    Ok(())
}

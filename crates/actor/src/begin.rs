//! How a call begins: at once on the caller's thread if the actor is idle, else through its mailbox or to its node.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Message, Rejected, Time, Unknown};

use crate::Actor;
use crate::begin_shared;
use crate::body::Body;
use crate::call::Call;
use crate::codec;
use crate::envelope::{self, Destination, Payload, Post};
use crate::flow::{AddedValues, Carried, NEVER};
use crate::function::Function;
use crate::host::{Finished, Target, Ticket};
use crate::lent::Held;
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::scope::{self, Inline, Inside, Scope, Whose};
use crate::slot::{ReplySlot, Slot};
use crate::spares;
use crate::turn::Turn;

/// What the first poll of a call came to.
pub(crate) enum Begun<R> {
    Over(Result<R, CallError>),
    /// The reply comes to the slot, until a time.
    Waiting(Arc<Slot<R>>, Time),
    /// The same, and the caller may have to go on with the turn.
    Entrusted(Arc<Slot<R>>, Time),
}

/// Makes a call.
#[inline]
pub(crate) fn begin<F: Function>(call: Call<'_, F>, waker: &Waker) -> Begun<F::Reply> {
    let deadline = call.ends();
    let target = call.target;
    let Some(seat) = target.target() else {
        return dispatch(call, deadline, waker);
    };
    match seat.begin(scope::depth()) {
        Some(body) => run(target, &**seat, body, call, deadline, waker),
        None => begin_busy(target, &**seat, call, deadline, waker),
    }
}

/// Runs the turn of an idle actor on this thread.
#[inline]
fn run<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    body: Box<Body<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    scope::count_inline_call();
    if !F::MAY_WAIT {
        run_plain(target, seat, body, call, deadline, waker)
    } else if F::SHARED {
        begin_shared::run(target, seat, body, call, deadline, waker)
    } else {
        run_inline(target, seat, body, call, deadline, waker)
    }
}

/// Makes a call to an actor that is not idle.
#[inline(never)]
fn begin_busy<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    match scope::inside(target.id()) {
        Inside::No => match scope::aside(|| seat.begin_soon(scope::depth())) {
            Some(body) => run(target, seat, body, call, deadline, waker),
            None => queue(seat, call, deadline, waker),
        },
        Inside::Sharing(lent) if F::SHARED => begin_shared::join(target, seat, lent, call, deadline, waker),
        Inside::Sharing(_) | Inside::Alone => Begun::Over(Err(CallError::CallCycle)),
    }
}

/// Runs the turn of an idle actor on this thread; its handler may wait.
#[inline]
fn run_inline<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    mut body: Box<Body<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let Call { arguments, added, .. } = call;
    let own_waker = body.take_waker();
    Scope::enter_inline(
        Whose::alone(&mut body),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    // A panic while the future is made can't happen: an async handler runs nothing before its first poll.
    let mut turn = envelope::running::<F>(F::Held::own(body), arguments);
    let mut cx = Context::from_waker(&own_waker);
    let mut place = None;
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut place, &mut cx))) {
        Ok(Poll::Ready(())) => {}
        Ok(Poll::Pending) => {
            let entrusts = seat.entrusts();
            // A caller that goes on with the turn hears of the reply that way.
            let slot = turn.as_mut().answer_later(Some(waker).filter(|_| !entrusts));
            let deadline = suspend(seat, turn, own_waker, entrusts.then(|| (slot.ticket(), waker)));
            return match entrusts {
                true => Begun::Entrusted(slot, deadline),
                false => Begun::Waiting(slot, deadline),
            };
        }
        Err(_) => {
            drop(Scope::leave());
            // The state went down with the handler; only then may the actor start again.
            drop_quietly(turn);
            return panicked(seat);
        }
    }
    let mut body = place.expect("a handler that is over has given its actor back");
    let deadline = Scope::end(&mut body, || F::METHOD);
    body.restore_waker(own_waker);
    let reply = turn.as_mut().take_reply();
    spares::keep(turn);
    conclude::<F>(seat, body, reply, deadline, waker)
}

/// Runs the turn of an idle actor on this thread; its handler never waits.
#[inline]
fn run_plain<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    mut body: Box<Body<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let Call { arguments, added, .. } = call;
    Scope::enter_inline(
        Whose::alone(&mut body),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    let Ok(reply) = catch_unwind(AssertUnwindSafe(|| F::run_plain(&mut body.state, arguments))) else {
        return panicked_plain::<F>(seat, body);
    };
    let deadline = Scope::end(&mut body, || F::METHOD);
    body.changed |= !F::READ_ONLY;
    conclude::<F>(seat, body, reply, deadline, waker)
}

/// Whether a tell of this function may run on the teller's thread: it never waits, and nothing is to be saved before its sender
/// may know of it.
pub(crate) const fn may_run_told<F: Function>() -> bool {
    !F::MAY_WAIT && !matches!(F::Actor::PERSIST, Persist::EachTurn)
}

/// Runs what was told to an idle actor on this thread.
#[inline]
pub(crate) fn run_told<F: Function>(
    seat: &dyn Target<F::Actor>,
    mut body: Box<Body<F::Actor>>,
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
        Whose::alone(&mut body),
        || target.bound(),
        inline::<F>(deadline, added, true),
        || codec::encoded_size(&arguments),
    );
    run_told_handler::<F>(seat, body, arguments);
}

/// The same for what has waited for room in its mailbox.
pub(crate) fn run_told_late<F: Function>(
    seat: &dyn Target<F::Actor>,
    mut body: Box<Body<F::Actor>>,
    payload: Payload<F>,
) {
    scope::count_inline_call();
    let Payload { arguments, carried, .. } = payload;
    Scope::enter_message(&mut body, carried, || codec::encoded_size(&arguments));
    run_told_handler::<F>(seat, body, arguments);
}

/// Runs the handler of what was told, whose scope is entered.
#[inline]
fn run_told_handler<F: Function>(seat: &dyn Target<F::Actor>, mut body: Box<Body<F::Actor>>, arguments: F::Arguments) {
    // The reply that nobody wants is dropped inside, because that runs the application's code too.
    let run = || drop(F::run_plain(&mut body.state, arguments));
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        panicked_plain::<F>(seat, body);
        return;
    }
    Scope::end(&mut body, || F::METHOD);
    body.changed |= !F::READ_ONLY;
    seat.finish(body);
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
    seat: &dyn Target<F::Actor>,
    body: Box<Body<F::Actor>>,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) && body.changed {
        let slot = Slot::new(Some(waker));
        seat.finish_saved(body, envelope::finished::<F>(reply, slot.clone()));
        return Begun::Waiting(slot, deadline);
    }
    match seat.finish(body) {
        Finished::Reply => Begun::Over(Ok(reply)),
        finished => reply_unusually::<F>(seat, finished, reply, deadline, waker),
    }
}

/// The turn waits for something, and so does its caller. Gives the deadline.
fn suspend<A: Actor>(
    seat: &dyn Target<A>,
    turn: Pin<Box<dyn Turn<A>>>,
    waker: Arc<Waker>,
    caller: Option<(Ticket, &Waker)>,
) -> Time {
    let mut scope = Scope::leave();
    scope.part_from_caller();
    let deadline = scope.deadline();
    seat.suspend(turn, scope, waker, caller);
    deadline
}

#[cold]
pub(crate) fn panicked<A: Actor, R>(seat: &dyn Target<A>) -> Begun<R> {
    seat.count_panic();
    seat.lost();
    Begun::Over(Err(CallError::Panicked))
}

/// A handler that never waits panicked. An actor that it only read goes on.
#[cold]
fn panicked_plain<F: Function>(seat: &dyn Target<F::Actor>, mut body: Box<Body<F::Actor>>) -> Begun<F::Reply> {
    if F::READ_ONLY {
        Scope::end(&mut body, || F::METHOD);
        seat.count_panic();
        seat.finish(body);
        return Begun::Over(Err(CallError::Panicked));
    }
    drop(Scope::leave());
    // What the handler left behind is nobody's; only then may the actor start again.
    drop_quietly(body);
    panicked(seat)
}

/// The turn is over but its node must not show it: now, or at all.
#[cold]
pub(crate) fn reply_unusually<F: Function>(
    seat: &dyn Target<F::Actor>,
    finished: Finished,
    reply: F::Reply,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    match finished {
        // A caller within the node is held back itself when it comes to reply.
        Finished::Hold if scope::depth() == 0 => {
            let slot = Slot::new(Some(waker));
            seat.hold_reply(envelope::finished::<F>(reply, slot.clone()));
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
pub(crate) fn carried<F: Function>(
    target: &RawRef<F::Actor>,
    arguments: &F::Arguments,
    deadline: Time,
    added: AddedValues,
    one_way: bool,
) -> Carried {
    let callee = (target.id(), F::METHOD);
    scope::carried(&**target.bound(), callee, deadline, added, one_way, || {
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
    seat: &dyn Target<F::Actor>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let deadline = waiting_deadline::<F>(call.target, deadline);
    let carried = carried::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = carried.deadline();
    let slot = Slot::new(Some(waker));
    let mut post = Post::<F>(Some(Payload {
        arguments: call.arguments,
        carried,
        destination: Destination::Local(slot.clone()),
    }));
    match seat.post(&mut post, None) {
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
    let carried = carried::<F>(call.target, &call.arguments, deadline, call.added, false);
    let deadline = carried.deadline();
    let slot = Slot::new(None);
    if let Err(error) = send::<F>(call.target, call.arguments, carried, Some(slot.clone())) {
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
    let carried = carried::<F>(call.target, &call.arguments, deadline, call.added, true);
    send::<F>(call.target, call.arguments, carried, None)
}

/// Tells without waiting for room.
pub(crate) fn post<F: Function>(call: Call<'_, F>) -> Result<(), CallError> {
    let deadline = call.ends();
    let Some(seat) = call.target.target() else {
        return dispatch_tell(call, deadline);
    };
    let carried = carried::<F>(call.target, &call.arguments, deadline, call.added, true);
    let mut post = Post::<F>(Some(Payload {
        arguments: call.arguments,
        carried,
        destination: Destination::Nowhere,
    }));
    seat.post(&mut post, None)
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
    carried: Carried,
    slot: Option<Arc<Slot<F::Reply>>>,
) -> Result<(), CallError> {
    if let Err(long) = target.id().key.check() {
        return Err(CallError::Rejected(Rejected::KeyTooLong { bytes: long.bytes }));
    }
    let body = codec::encode(&arguments, "the arguments", F::NAME).map_err(CallError::Rejected)?;
    let host = target.bound();
    let header = carried.into_header(&**host);
    let reply = slot.map(|slot| ReplySlot::decoding::<F>(slot, header.call));
    let message = Message {
        target: target.id().clone(),
        header,
        method: F::METHOD,
        body,
    };
    host.send(Arc::new(message), reply);
    Ok(())
}

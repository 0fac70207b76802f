//! Starts a call whose handler shares its actor: on an idle actor, or interleaved with a turn further up this thread's
//! stack of inline calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Time};

use crate::Actor;
use crate::call::Call;
use crate::envelope;
use crate::function::Function;
use crate::host::{Finished, Invoke, Join, Share};
use crate::instance::Instance;
use crate::invoke::{FirstPoll, conclude, drop_contained, enqueue, enter, withhold_reply};
use crate::persist::Persist;
use crate::reply::ReplyCell;
use crate::scope::{self, Scope, TurnOwner};
use crate::shared_instance::{Held, SharedInstance};
use crate::turn::Turn;
use crate::turn_pool;

/// Result of the first poll of a sharing turn.
enum SharedPoll<F: Function> {
    /// It ended with a reply and its deadline, or panicked.
    Ended(Result<(F::Reply, Time), CallError>),
    Pending {
        turn: Pin<Box<dyn Turn<F::Actor>>>,
        scope: Box<Scope>,
        reply_cell: Arc<ReplyCell<F::Reply>>,
    },
}

/// Runs a sharing handler of an idle actor inline.
pub(crate) fn run<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let shared = F::share(instance);
    let ended = match poll_inline::<F>(cell, &shared, call, deadline, waker) {
        SharedPoll::Pending {
            turn,
            scope,
            reply_cell,
        } => {
            let deadline = scope.call_context.deadline;
            cell.suspend_shared(shared, turn, scope, Share::First);
            return FirstPoll::Pending(reply_cell, deadline);
        }
        SharedPoll::Ended(ended) => ended,
    };
    if shared.is_broken() {
        return conclude_shared::<F>(cell, shared, ended, Share::First, waker);
    }
    match (shared.give_back(), ended) {
        (Ok(instance), Ok((reply, deadline))) => conclude::<F>(cell, instance, reply, deadline, waker),
        (Ok(instance), Err(error)) => {
            cell.finish(instance);
            FirstPoll::Ready(Err(error))
        }
        // Other turns have started meanwhile and are suspended.
        (Err(shared), ended) => conclude_shared::<F>(cell, shared, ended, Share::First, waker),
    }
}

/// Starts a call to an actor that this thread is already inside of, interleaved with that turn.
pub(crate) fn join<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    shared: SharedInstance,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let sender = scope::current_actor().expect("a thread inside an actor has a current turn");
    match cell.join(scope::depth(), &sender) {
        Join::Here => scope::count_inline_call(),
        Join::Queued => return enqueue(cell, call, deadline, waker),
        Join::Refused(why) => return FirstPoll::Ready(Err(why)),
    }
    match poll_inline::<F>(cell, &shared, call, deadline, waker) {
        SharedPoll::Pending {
            turn,
            scope,
            reply_cell,
        } => {
            let deadline = scope.call_context.deadline;
            cell.suspend_shared(shared, turn, scope, Share::Joined);
            FirstPoll::Pending(reply_cell, deadline)
        }
        SharedPoll::Ended(ended) => conclude_shared::<F>(cell, shared, ended, Share::Joined, waker),
    }
}

/// Starts the handler and polls it once.
fn poll_inline<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    shared: &SharedInstance,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> SharedPoll<F> {
    let arguments = enter(call, TurnOwner::shared::<F::Actor>(shared), deadline, false);
    if !F::MAY_WAIT {
        let ran = catch_unwind(AssertUnwindSafe(|| envelope::read_plain::<F>(shared, arguments)));
        return match ran {
            Ok(reply) => SharedPoll::Ended(Ok((reply, Scope::end_shared(shared, || F::METHOD)))),
            Err(_) => panicked_shared::<F>(cell, shared),
        };
    }
    let mut turn = envelope::running::<F>(F::Held::share(shared, F::READ_ONLY), arguments);
    let mut cx = Context::from_waker(shared.instance::<F::Actor>().waker());
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx))) {
        Ok(Poll::Ready(())) => {
            let deadline = Scope::end_shared(shared, || F::METHOD);
            let reply = turn.as_mut().take_reply();
            turn_pool::keep(turn);
            SharedPoll::Ended(Ok((reply, deadline)))
        }
        Ok(Poll::Pending) => {
            let reply_cell = turn.as_mut().reply_to_cell(Some(waker));
            let mut scope = Scope::leave();
            scope.detach_from_caller();
            SharedPoll::Pending {
                turn,
                scope,
                reply_cell,
            }
        }
        Err(_) => {
            let ran = panicked_shared::<F>(cell, shared);
            drop_contained(turn);
            ran
        }
    }
}

#[cold]
fn panicked_shared<F: Function>(cell: &dyn Invoke<F::Actor>, shared: &SharedInstance) -> SharedPoll<F> {
    drop(Scope::leave());
    if !F::READ_ONLY {
        shared.mark_broken();
    }
    cell.panicked(false);
    SharedPoll::Ended(Err(CallError::Panicked))
}

/// Ends a turn whose actor other turns share, and resolves the reply.
fn conclude_shared<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    shared: SharedInstance,
    ended: Result<(F::Reply, Time), CallError>,
    share: Share,
    waker: &Waker,
) -> FirstPoll<F::Reply> {
    let (reply, deadline) = match ended {
        Ok(ended) => ended,
        Err(error) => {
            cell.finish_shared(shared, None, share);
            return FirstPoll::Ready(Err(error));
        }
    };
    if matches!(F::Actor::PERSIST, Persist::EachTurn) {
        let reply_cell = ReplyCell::new(Some(waker));
        cell.finish_shared(shared, Some(envelope::finished::<F>(reply, reply_cell.clone())), share);
        return FirstPoll::Pending(reply_cell, deadline);
    }
    match cell.finish_shared(shared, None, share) {
        Finished::Reply => FirstPoll::Ready(Ok(reply)),
        finished => withhold_reply::<F>(cell, finished, reply, deadline, waker),
    }
}

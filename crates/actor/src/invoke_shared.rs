//! How a call begins whose handler shares its actor with others: on an idle actor, or beside a turn that this very chain of
//! calls is inside of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Time};

use crate::Actor;
use crate::call::Call;
use crate::codec;
use crate::envelope;
use crate::function::Function;
use crate::host::{Finished, Invoke, Join, Share};
use crate::instance::Instance;
use crate::invoke::{Begun, conclude, drop_quietly, inline, queue, reply_unusually};
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::reply::ReplyCell;
use crate::scope::{self, Scope, Whose};
use crate::shared_instance::{Held, SharedInstance};
use crate::turn::Turn;
use crate::turn_pool;

/// What the first poll came to.
enum Ran<F: Function> {
    Over(F::Reply, Time),
    Waits {
        turn: Pin<Box<dyn Turn<F::Actor>>>,
        scope: Box<Scope>,
        slot: Arc<ReplyCell<F::Reply>>,
    },
    Panicked,
}

/// Runs a handler that shares its actor, which is idle, on this thread.
pub(crate) fn run<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    instance: Box<Instance<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let shared = F::lend(instance);
    let ended = match run_here::<F>(target, &shared, call, deadline, waker) {
        Ran::Waits { turn, scope, slot } => {
            let deadline = scope.deadline();
            cell.suspend_shared(shared, turn, scope, Share::First);
            return Begun::Waiting(slot, deadline);
        }
        Ran::Over(reply, deadline) => Some((reply, deadline)),
        Ran::Panicked => {
            cell.count_panic();
            None
        }
    };
    let is_broken = shared.is_broken();
    match (shared.give_back(), ended) {
        (Ok(instance), Some((reply, deadline))) if !is_broken => conclude::<F>(cell, instance, reply, deadline, waker),
        (Ok(instance), None) if !is_broken => {
            cell.finish(instance);
            Begun::Over(Err(CallError::Panicked))
        }
        (Ok(instance), _) => {
            drop_quietly(instance);
            cell.lost();
            Begun::Over(Err(CallError::Panicked))
        }
        // Others have begun meanwhile and wait for something.
        (Err(shared), Some((reply, deadline))) => {
            conclude_shared::<F>(cell, shared, reply, deadline, Share::First, waker)
        }
        (Err(shared), None) => {
            cell.finish_shared(shared, None, Share::First);
            Begun::Over(Err(CallError::Panicked))
        }
    }
}

/// Makes a call of an actor that this thread is inside of, beside the turn that is there.
pub(crate) fn join<F: Function>(
    target: &RawRef<F::Actor>,
    cell: &dyn Invoke<F::Actor>,
    shared: SharedInstance,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let sender = scope::current_actor().expect("who is inside an actor is in a turn");
    match cell.join(scope::depth(), &sender) {
        Join::Here => scope::count_inline_call(),
        Join::Queued => return queue(cell, call, deadline, waker),
        Join::Refused(why) => return Begun::Over(Err(why)),
    }
    match run_here::<F>(target, &shared, call, deadline, waker) {
        Ran::Waits { turn, scope, slot } => {
            let deadline = scope.deadline();
            cell.suspend_shared(shared, turn, scope, Share::Joined);
            Begun::Waiting(slot, deadline)
        }
        Ran::Over(reply, deadline) => conclude_shared::<F>(cell, shared, reply, deadline, Share::Joined, waker),
        Ran::Panicked => {
            cell.count_panic();
            cell.finish_shared(shared, None, Share::Joined);
            Begun::Over(Err(CallError::Panicked))
        }
    }
}

/// Runs the handler until it waits or is over.
fn run_here<F: Function>(
    target: &RawRef<F::Actor>,
    shared: &SharedInstance,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Ran<F> {
    let Call { arguments, added, .. } = call;
    Scope::enter_inline(
        Whose::sharing::<F::Actor>(shared),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    if !F::MAY_WAIT {
        let ran = catch_unwind(AssertUnwindSafe(|| envelope::read_plain::<F>(shared, arguments)));
        return match ran {
            Ok(reply) => Ran::Over(reply, Scope::end_shared(shared, || F::METHOD)),
            Err(_) => panicked_here::<F>(shared),
        };
    }
    let mut turn = envelope::running::<F>(F::Held::share(shared, F::READ_ONLY), arguments);
    let mut cx = Context::from_waker(shared.instance::<F::Actor>().waker());
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx))) {
        Ok(Poll::Ready(())) => {
            let deadline = Scope::end_shared(shared, || F::METHOD);
            let reply = turn.as_mut().take_reply();
            turn_pool::keep(turn);
            Ran::Over(reply, deadline)
        }
        Ok(Poll::Pending) => {
            let slot = turn.as_mut().answer_later(Some(waker));
            let mut scope = Scope::leave();
            scope.part_from_caller();
            Ran::Waits { turn, scope, slot }
        }
        Err(_) => {
            let ran = panicked_here::<F>(shared);
            drop_quietly(turn);
            ran
        }
    }
}

#[cold]
fn panicked_here<F: Function>(shared: &SharedInstance) -> Ran<F> {
    drop(Scope::leave());
    if !F::READ_ONLY {
        shared.mark_broken();
    }
    Ran::Panicked
}

/// The turn is over, and others share its actor: gives the reply to whom it belongs.
fn conclude_shared<F: Function>(
    cell: &dyn Invoke<F::Actor>,
    shared: SharedInstance,
    reply: F::Reply,
    deadline: Time,
    share: Share,
    waker: &Waker,
) -> Begun<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) {
        let slot = ReplyCell::new(Some(waker));
        cell.finish_shared(shared, Some(envelope::finished::<F>(reply, slot.clone())), share);
        return Begun::Waiting(slot, deadline);
    }
    match cell.finish_shared(shared, None, share) {
        Finished::Reply => Begun::Over(Ok(reply)),
        finished => reply_unusually::<F>(cell, finished, reply, deadline, waker),
    }
}

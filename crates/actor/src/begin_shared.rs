//! How a call begins whose handler shares its actor with others: on an idle actor, or beside a turn that this very chain of
//! calls is inside of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use elastin_types::{CallError, Time};

use crate::Actor;
use crate::begin::{Begun, conclude, drop_quietly, inline, queue, reply_unusually};
use crate::body::Body;
use crate::call::Call;
use crate::codec;
use crate::envelope;
use crate::function::Function;
use crate::host::{Finished, Join, Share, Target};
use crate::lent::{Held, Lent};
use crate::persist::Persist;
use crate::reference::RawRef;
use crate::scope::{self, Scope, Whose};
use crate::slot::Slot;
use crate::spares;
use crate::turn::Turn;

/// What the first poll came to.
enum Ran<F: Function> {
    Over(F::Reply, Time),
    Waits {
        turn: Pin<Box<dyn Turn<F::Actor>>>,
        scope: Box<Scope>,
        slot: Arc<Slot<F::Reply>>,
    },
    Panicked,
}

/// Runs a handler that shares its actor, which is idle, on this thread.
pub(crate) fn run<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    body: Box<Body<F::Actor>>,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let lent = F::lend(body);
    let ended = match run_here::<F>(target, &lent, call, deadline, waker) {
        Ran::Waits { turn, scope, slot } => {
            let deadline = scope.deadline();
            seat.suspend_shared(lent, turn, scope, Share::First);
            return Begun::Waiting(slot, deadline);
        }
        Ran::Over(reply, deadline) => Some((reply, deadline)),
        Ran::Panicked => {
            seat.count_panic();
            None
        }
    };
    let is_broken = lent.is_broken();
    match (lent.give_back(), ended) {
        (Ok(body), Some((reply, deadline))) if !is_broken => conclude::<F>(seat, body, reply, deadline, waker),
        (Ok(body), None) if !is_broken => {
            seat.finish(body);
            Begun::Over(Err(CallError::Panicked))
        }
        (Ok(body), _) => {
            drop_quietly(body);
            seat.lost();
            Begun::Over(Err(CallError::Panicked))
        }
        // Others have begun meanwhile and wait for something.
        (Err(lent), Some((reply, deadline))) => conclude_shared::<F>(seat, lent, reply, deadline, Share::First, waker),
        (Err(lent), None) => {
            seat.finish_shared(lent, None, Share::First);
            Begun::Over(Err(CallError::Panicked))
        }
    }
}

/// Makes a call of an actor that this thread is inside of, beside the turn that is there.
pub(crate) fn join<F: Function>(
    target: &RawRef<F::Actor>,
    seat: &dyn Target<F::Actor>,
    lent: Lent,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Begun<F::Reply> {
    let sender = scope::current_actor().expect("who is inside an actor is in a turn");
    match seat.join(scope::depth(), &sender) {
        Join::Here => scope::count_inline_call(),
        Join::Queued => return queue(seat, call, deadline, waker),
        Join::Refused(why) => return Begun::Over(Err(why)),
    }
    match run_here::<F>(target, &lent, call, deadline, waker) {
        Ran::Waits { turn, scope, slot } => {
            let deadline = scope.deadline();
            seat.suspend_shared(lent, turn, scope, Share::Joined);
            Begun::Waiting(slot, deadline)
        }
        Ran::Over(reply, deadline) => conclude_shared::<F>(seat, lent, reply, deadline, Share::Joined, waker),
        Ran::Panicked => {
            seat.count_panic();
            seat.finish_shared(lent, None, Share::Joined);
            Begun::Over(Err(CallError::Panicked))
        }
    }
}

/// Runs the handler until it waits or is over.
fn run_here<F: Function>(
    target: &RawRef<F::Actor>,
    lent: &Lent,
    call: Call<'_, F>,
    deadline: Time,
    waker: &Waker,
) -> Ran<F> {
    let Call { arguments, added, .. } = call;
    Scope::enter_inline(
        Whose::sharing::<F::Actor>(lent),
        || target.bound(),
        inline::<F>(deadline, added, false),
        || codec::encoded_size(&arguments),
    );
    if !F::MAY_WAIT {
        let ran = catch_unwind(AssertUnwindSafe(|| envelope::read_plain::<F>(lent, arguments)));
        return match ran {
            Ok(reply) => Ran::Over(reply, Scope::end_shared(lent, || F::METHOD)),
            Err(_) => panicked_here::<F>(lent),
        };
    }
    let mut turn = envelope::running::<F>(F::Held::share(lent, F::READ_ONLY), arguments);
    let mut cx = Context::from_waker(lent.body::<F::Actor>().waker());
    match catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(&mut None, &mut cx))) {
        Ok(Poll::Ready(())) => {
            let deadline = Scope::end_shared(lent, || F::METHOD);
            let reply = turn.as_mut().take_reply();
            spares::keep(turn);
            Ran::Over(reply, deadline)
        }
        Ok(Poll::Pending) => {
            let slot = turn.as_mut().answer_later(Some(waker));
            let mut scope = Scope::leave();
            scope.part_from_caller();
            Ran::Waits { turn, scope, slot }
        }
        Err(_) => {
            let ran = panicked_here::<F>(lent);
            drop_quietly(turn);
            ran
        }
    }
}

#[cold]
fn panicked_here<F: Function>(lent: &Lent) -> Ran<F> {
    drop(Scope::leave());
    if !F::READ_ONLY {
        lent.mark_broken();
    }
    Ran::Panicked
}

/// The turn is over, and others share its actor: gives the reply to whom it belongs.
fn conclude_shared<F: Function>(
    seat: &dyn Target<F::Actor>,
    lent: Lent,
    reply: F::Reply,
    deadline: Time,
    share: Share,
    waker: &Waker,
) -> Begun<F::Reply> {
    if matches!(F::Actor::PERSIST, Persist::EachTurn) {
        let slot = Slot::new(Some(waker));
        seat.finish_shared(lent, Some(envelope::finished::<F>(reply, slot.clone())), share);
        return Begun::Waiting(slot, deadline);
    }
    match seat.finish_shared(lent, None, share) {
        Finished::Reply => Begun::Over(Ok(reply)),
        finished => reply_unusually::<F>(seat, finished, reply, deadline, waker),
    }
}

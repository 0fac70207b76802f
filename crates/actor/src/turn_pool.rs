//! Thread-local pool of inline turns. The next call of the same function on the same thread reuses the allocation,
//! which would otherwise dominate the cost of a short call.

use std::any::Any;
use std::cell::Cell;
use std::pin::Pin;

use crate::envelope::InlineTurn;
use crate::function::Function;
use crate::tuning::TURN_SLOTS;

/// A turn that runs on its caller's thread.
pub(crate) type InlineTurnBox<F> = Pin<Box<dyn InlineTurn<F>>>;

/// An `Option<InlineTurnBox<F>>` for some `F`. The outer box stays while its turn is in use, to avoid reallocating it.
type Slot = Cell<Option<Box<dyn Any>>>;

thread_local! {
    static POOL: [Slot; TURN_SLOTS] = const { [const { Cell::new(None) }; TURN_SLOTS] };
}

/// Accesses the slot of a function; `None` if another function owns it or the thread is exiting.
#[inline]
fn with_slot<F: Function, T>(access: impl FnOnce(&mut Option<InlineTurnBox<F>>) -> T) -> Option<T> {
    let access_slot = |slots: &[Slot; TURN_SLOTS]| {
        let slot = &slots[F::METHOD.number() as usize % TURN_SLOTS];
        let mut kept = slot.take().unwrap_or_else(|| Box::new(None::<InlineTurnBox<F>>));
        let result = kept.downcast_mut().map(access);
        slot.set(Some(kept));
        result
    };
    POOL.try_with(access_slot).ok().flatten()
}

/// Takes a pooled turn of the function, if there is one.
#[inline]
pub(crate) fn take<F: Function>() -> Option<InlineTurnBox<F>> {
    with_slot(Option::take).flatten()
}

/// Returns a turn that has ended and whose reply was taken.
#[inline]
pub(crate) fn keep<F: Function>(turn: InlineTurnBox<F>) {
    with_slot(|slot| *slot = Some(turn));
}

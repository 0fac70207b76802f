//! Turns that are over, kept for the next call of the same function on the same thread: a call that runs at once would spend a
//! fifth of its time on the allocation of its own.

use std::any::Any;
use std::cell::Cell;
use std::pin::Pin;

use crate::envelope::InlineTurn;
use crate::function::Function;

/// A turn that runs on its caller's thread.
pub(crate) type InlineTurnBox<F> = Pin<Box<dyn InlineTurn<F>>>;

/// How many functions a thread keeps a turn of. Of two that have the same place, the first to come has it.
const PLACES: usize = 64;

/// An `Option<InlineTurnBox<F>>` for some `F`. It stays while its turn is in use, so that it is not allocated again either.
type Place = Cell<Option<Box<dyn Any>>>;

thread_local! {
    static POOL_SLOTS: [Place; PLACES] = const { [const { Cell::new(None) }; PLACES] };
}

/// Shows the place for turns of a function, if it has one; `None` also while the thread ends.
#[inline]
fn with_place<F: Function, T>(look: impl FnOnce(&mut Option<InlineTurnBox<F>>) -> T) -> Option<T> {
    let look = |places: &[Place; PLACES]| {
        let place = &places[F::METHOD.number() as usize % PLACES];
        let mut kept = place.take().unwrap_or_else(|| Box::new(None::<InlineTurnBox<F>>));
        let seen = kept.downcast_mut().map(look);
        place.set(Some(kept));
        seen
    };
    POOL_SLOTS.try_with(look).ok().flatten()
}

/// A turn of the function that is over, if there is one.
#[inline]
pub(crate) fn take<F: Function>() -> Option<InlineTurnBox<F>> {
    with_place(Option::take).flatten()
}

/// Keeps a turn that is over and whose reply was taken.
#[inline]
pub(crate) fn keep<F: Function>(turn: InlineTurnBox<F>) {
    with_place(|place| *place = Some(turn));
}

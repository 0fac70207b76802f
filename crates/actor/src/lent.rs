//! An actor that several turns share, each of which borrows it as `&self`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Actor;
use crate::body::{Body, Sampling, UsedSince};

/// An actor that several turns share. Each turn that is not over has a clone; when the last one is over, the actor is
/// [given back](Lent::give_back) whole.
///
/// It does not name the actor's type, because only types with handlers that share their actor can be shared between
/// threads at all: others need not be `Sync`, and nothing of theirs is ever lent.
#[derive(Clone)]
pub struct Lent(Arc<Shared>);

struct Shared {
    /// A `Body` of the actor's type, in its own box: it is not moved.
    body: Box<dyn Any + Send + Sync>,
    sampling: Mutex<Sampling>,
    /// How many turns that may change the actor are not over.
    changing: AtomicU32,
    /// Whether such a turn has ended since this was last cleared.
    changed: AtomicBool,
    /// Whether a turn that may have changed the actor panicked.
    broken: AtomicBool,
}

impl Lent {
    /// Lends an actor.
    pub fn new<A: Actor + Sync>(body: Box<Body<A>>) -> Self {
        let mut body = body;
        body.ensure_waker();
        Self(Arc::new(Shared {
            sampling: Mutex::new(body.sampling),
            changing: AtomicU32::new(0),
            changed: AtomicBool::new(body.changed),
            broken: AtomicBool::new(false),
            body,
        }))
    }

    /// The actor.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn body<A: Actor>(&self) -> &Body<A> {
        let body = self.0.body.downcast_ref();
        body.expect("a seat lends actors of its own type")
    }

    /// Gives the actor back if no other turn has it, with what has become known of it meanwhile.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn give_back<A: Actor>(self) -> Result<Box<Body<A>>, Lent> {
        let shared = Arc::try_unwrap(self.0).map_err(Lent)?;
        let body = shared.body.downcast::<Body<A>>();
        let mut body = body.unwrap_or_else(|_| panic!("a seat lends actors of its own type"));
        body.sampling = shared.sampling.into_inner().unwrap_or_else(PoisonError::into_inner);
        body.changed = shared.changed.into_inner();
        body.used = UsedSince::ALL;
        Ok(body)
    }

    /// Whether the actor may differ from what it was when [`clear_changed`](Lent::clear_changed) was last called.
    pub fn is_changed(&self) -> bool {
        self.0.changed.load(Ordering::Acquire) || self.0.changing.load(Ordering::Acquire) > 0
    }

    /// From now on only later changes count.
    pub fn clear_changed(&self) {
        self.0.changed.store(false, Ordering::Release);
    }

    /// A turn that may change the actor begins.
    pub(crate) fn begin_change(&self) {
        self.0.changing.fetch_add(1, Ordering::AcqRel);
    }

    /// Such a turn is over.
    pub(crate) fn end_change(&self) {
        self.0.changed.store(true, Ordering::Release);
        self.0.changing.fetch_sub(1, Ordering::AcqRel);
    }

    /// A turn that may have changed the actor panicked: nobody may rely on it any longer.
    pub fn mark_broken(&self) {
        self.0.broken.store(true, Ordering::Release);
    }

    /// Whether nobody may rely on the actor any longer.
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }

    /// Whether the turn that begins now is measured, and if so how many turns it stands for.
    pub(crate) fn measure_next(&self) -> Option<u32> {
        self.sampling().next()
    }

    /// Sets how many turns one measured turn stands for from the next one on.
    pub(crate) fn set_stride(&self, stride: u16) {
        self.sampling().set_stride(stride);
    }

    fn sampling(&self) -> MutexGuard<'_, Sampling> {
        // Nothing that can panic runs under this lock, so what it guards is whole.
        self.0.sampling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a handler's future holds its actor by: all of it, or a part in one that is lent.
pub trait Held<A>: Send + 'static {
    /// Of an actor that nobody else has.
    fn own(body: Box<Body<A>>) -> Self;

    /// Of one that several turns share; the handler only reads it or may change it.
    fn share(lent: &Lent, read_only: bool) -> Self;

    /// The handler is over: puts the actor into its place if nobody else has it.
    fn give_back(self, place: &mut Option<Box<Body<A>>>, read_only: bool);
}

impl<A: Actor> Held<A> for Box<Body<A>> {
    #[inline]
    fn own(body: Box<Body<A>>) -> Self {
        body
    }

    fn share(_lent: &Lent, _read_only: bool) -> Self {
        unreachable!("a handler with `&mut self` has its actor for itself")
    }

    #[inline]
    fn give_back(mut self, place: &mut Option<Box<Body<A>>>, read_only: bool) {
        self.changed |= !read_only;
        *place = Some(self);
    }
}

impl<A: Actor> Held<A> for Lent {
    fn own(_body: Box<Body<A>>) -> Self {
        unreachable!("a handler that waits with `&self` shares its actor")
    }

    fn share(lent: &Lent, read_only: bool) -> Self {
        if !read_only {
            lent.begin_change();
        }
        lent.clone()
    }

    fn give_back(self, _place: &mut Option<Box<Body<A>>>, read_only: bool) {
        if !read_only {
            self.end_change();
        }
    }
}

//! An actor that several turns share, each of which borrows it as `&self`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Actor;
use crate::instance::{Instance, Sampling, UsedSince};

/// An actor that several turns share. Each turn that is not over has a clone; when the last one is over, the actor is
/// [given back](SharedInstance::give_back) whole.
///
/// It does not name the actor's type, because only types with handlers that share their actor can be shared between
/// threads at all: others need not be `Sync`, and nothing of theirs is ever shared.
#[derive(Clone)]
pub struct SharedInstance(Arc<Shared>);

struct Shared {
    /// A `Instance` of the actor's type, in its own box: it is not moved.
    instance: Box<dyn Any + Send + Sync>,
    sampling: Mutex<Sampling>,
    /// How many turns that may change the actor are not over.
    changing: AtomicU32,
    /// Whether such a turn has ended since this was last cleared.
    changed: AtomicBool,
    /// Whether a turn that may have changed the actor panicked.
    broken: AtomicBool,
}

impl SharedInstance {
    /// Lends an actor.
    pub fn new<A: Actor + Sync>(instance: Box<Instance<A>>) -> Self {
        let mut instance = instance;
        instance.ensure_waker();
        Self(Arc::new(Shared {
            sampling: Mutex::new(instance.sampling),
            changing: AtomicU32::new(0),
            changed: AtomicBool::new(instance.changed),
            broken: AtomicBool::new(false),
            instance,
        }))
    }

    /// The actor.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn instance<A: Actor>(&self) -> &Instance<A> {
        let instance = self.0.instance.downcast_ref();
        instance.expect("a cell lends actors of its own type")
    }

    /// Gives the actor back if no other turn has it, with what has become known of it meanwhile.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn give_back<A: Actor>(self) -> Result<Box<Instance<A>>, SharedInstance> {
        let shared = Arc::try_unwrap(self.0).map_err(SharedInstance)?;
        let instance = shared.instance.downcast::<Instance<A>>();
        let mut instance = instance.unwrap_or_else(|_| panic!("a cell lends actors of its own type"));
        instance.sampling = shared.sampling.into_inner().unwrap_or_else(PoisonError::into_inner);
        instance.changed = shared.changed.into_inner();
        instance.used = UsedSince::ALL;
        Ok(instance)
    }

    /// Whether the actor may differ from what it was when [`clear_changed`](SharedInstance::clear_changed) was last called.
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

/// What a handler's future holds its actor by: all of it, or a part in one that is shared.
pub trait Held<A>: Send + 'static {
    /// Of an actor that nobody else has.
    fn own(instance: Box<Instance<A>>) -> Self;

    /// Of one that several turns share; the handler only reads it or may change it.
    fn share(shared: &SharedInstance, read_only: bool) -> Self;

    /// The handler is over: puts the actor into its place if nobody else has it.
    fn give_back(self, place: &mut Option<Box<Instance<A>>>, read_only: bool);
}

impl<A: Actor> Held<A> for Box<Instance<A>> {
    #[inline]
    fn own(instance: Box<Instance<A>>) -> Self {
        instance
    }

    fn share(_lent: &SharedInstance, _read_only: bool) -> Self {
        unreachable!("a handler with `&mut self` has its actor for itself")
    }

    #[inline]
    fn give_back(mut self, place: &mut Option<Box<Instance<A>>>, read_only: bool) {
        self.changed |= !read_only;
        *place = Some(self);
    }
}

impl<A: Actor> Held<A> for SharedInstance {
    fn own(_body: Box<Instance<A>>) -> Self {
        unreachable!("a handler that waits with `&self` shares its actor")
    }

    fn share(shared: &SharedInstance, read_only: bool) -> Self {
        if !read_only {
            shared.begin_change();
        }
        shared.clone()
    }

    fn give_back(self, _place: &mut Option<Box<Instance<A>>>, read_only: bool) {
        if !read_only {
            self.end_change();
        }
    }
}

//! An instance shared by several turns, each of which borrows the actor as `&self`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Actor;
use crate::instance::{Instance, Sampling};

/// An instance shared by several turns. Each live turn has a clone; when the last one ends, the instance is
/// [reclaimed](SharedInstance::give_back).
///
/// The actor's type is erased, because only types with sharing handlers have to be `Sync`.
#[derive(Clone)]
pub struct SharedInstance(Arc<SharedState>);

struct SharedState {
    /// An `Instance` of the actor's type, in its original box.
    instance: Box<dyn Any + Send + Sync>,
    sampling: Mutex<Sampling>,
    /// Live turns that may change the actor.
    changing: AtomicU32,
    /// Whether such a turn has ended since this was last cleared.
    changed: AtomicBool,
    /// Whether a turn that may have changed the actor panicked.
    broken: AtomicBool,
}

impl SharedInstance {
    /// Makes an instance shareable.
    pub fn new<A: Actor + Sync>(instance: Box<Instance<A>>) -> Self {
        let mut instance = instance;
        instance.ensure_waker();
        Self(Arc::new(SharedState {
            sampling: Mutex::new(instance.sampling),
            changing: AtomicU32::new(0),
            changed: AtomicBool::new(instance.changed),
            broken: AtomicBool::new(false),
            instance,
        }))
    }

    /// The instance.
    ///
    /// # Panics
    /// If it is of another actor type.
    pub fn instance<A: Actor>(&self) -> &Instance<A> {
        let instance = self.0.instance.downcast_ref();
        instance.expect("a cell shares instances of its own actor type")
    }

    /// Reclaims the instance if no other turn shares it, with its sampling state and change flag up to date.
    ///
    /// # Panics
    /// If it is of another actor type.
    pub fn give_back<A: Actor>(self) -> Result<Box<Instance<A>>, SharedInstance> {
        let shared = Arc::try_unwrap(self.0).map_err(SharedInstance)?;
        let instance = shared.instance.downcast::<Instance<A>>();
        let mut instance = instance.unwrap_or_else(|_| panic!("a cell shares instances of its own actor type"));
        instance.sampling = shared.sampling.into_inner().unwrap_or_else(PoisonError::into_inner);
        instance.changed = shared.changed.into_inner();
        instance.mark_used();
        Ok(instance)
    }

    /// Whether the actor may have changed since the last [`clear_changed`](SharedInstance::clear_changed).
    pub fn is_changed(&self) -> bool {
        self.0.changed.load(Ordering::Acquire) || self.0.changing.load(Ordering::Acquire) > 0
    }

    /// Clears the change flag.
    pub fn clear_changed(&self) {
        self.0.changed.store(false, Ordering::Release);
    }

    /// Begins a turn that may change the actor.
    pub(crate) fn begin_change(&self) {
        self.0.changing.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a turn that may have changed the actor.
    pub(crate) fn end_change(&self) {
        self.0.changed.store(true, Ordering::Release);
        self.0.changing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Marks the actor as inconsistent: a turn that may have changed it panicked.
    pub fn mark_broken(&self) {
        self.0.broken.store(true, Ordering::Release);
    }

    /// Whether the actor may be inconsistent.
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }

    /// The weight of the turn that begins now; `None` if it is not measured.
    pub(crate) fn measure_next(&self) -> Option<u32> {
        self.sampling().next()
    }

    /// Sets the weight of the measured turns from the next one on.
    pub(crate) fn set_stride(&self, stride: u16) {
        self.sampling().set_stride(stride);
    }

    fn sampling(&self) -> MutexGuard<'_, Sampling> {
        // Nothing that can panic runs under this lock, so poisoning is harmless.
        self.0.sampling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler future's hold on its actor: the exclusive instance, or a share of it.
pub trait Held<A>: Send + 'static {
    /// An exclusive hold.
    fn own(instance: Box<Instance<A>>) -> Self;

    /// A share. Unless `read_only`, the handler may change the actor.
    fn share(shared: &SharedInstance, read_only: bool) -> Self;

    /// Releases the hold when the handler has ended. An exclusive instance is put into `place`.
    fn give_back(self, place: &mut Option<Box<Instance<A>>>, read_only: bool);
}

impl<A: Actor> Held<A> for Box<Instance<A>> {
    #[inline]
    fn own(instance: Box<Instance<A>>) -> Self {
        instance
    }

    fn share(_shared: &SharedInstance, _read_only: bool) -> Self {
        unreachable!("a handler with `&mut self` is exclusive")
    }

    #[inline]
    fn give_back(mut self, place: &mut Option<Box<Instance<A>>>, read_only: bool) {
        self.changed |= !read_only;
        *place = Some(self);
    }
}

impl<A: Actor> Held<A> for SharedInstance {
    fn own(_instance: Box<Instance<A>>) -> Self {
        unreachable!("an async handler with `&self` shares its actor")
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

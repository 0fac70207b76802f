//! The stack of scopes of a thread, and its pool of scopes.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use elastin_types::{ActorId, TenantId, Time};

use super::Scope;
use crate::call_context::CallContext;
use crate::tuning::{AWAITED_CALL_WEIGHT, INLINE_CALLS_MAX, INLINE_CALLS_OUTSIDE_MAX, POOLED_SCOPES_MAX};

/// A linked list of scopes, each in `outer` of the previous one.
type List = Cell<ManuallyDrop<Option<Box<Scope>>>>;

thread_local! {
    // No destructors on the hot path: access to a thread-local with one is much slower.
    /// The current scope of this thread; its outer scopes are linked behind it.
    static CURRENT: List = const { Cell::new(ManuallyDrop::new(None)) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Inline calls of this thread since it last yielded.
    static INLINE_CALLS: Cell<u32> = const { Cell::new(0) };
    /// Scopes for later turns. INVARIANT: pooled scopes are empty.
    static POOL: List = const { Cell::new(ManuallyDrop::new(None)) };
    static POOLED: Cell<u32> = const { Cell::new(0) };
    static CLEANUP: Cleanup = const { Cleanup };
}

/// Frees the pool when its thread exits.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        let mut pooled = ManuallyDrop::into_inner(POOL.take());
        // Iteratively, because dropping a long list would recurse.
        while let Some(mut scope) = pooled {
            pooled = scope.outer.take();
        }
    }
}

/// The current scope of this thread, taken out of the thread-local until this guard is dropped. Code that holds the
/// guard makes no calls.
pub(super) struct CurrentScope(ManuallyDrop<Option<Box<Scope>>>);

impl CurrentScope {
    #[inline]
    pub(super) fn take() -> Self {
        Self(CURRENT.take())
    }

    #[inline]
    pub(super) fn scope(&mut self) -> Option<&mut Scope> {
        self.0.as_deref_mut()
    }
}

impl Drop for CurrentScope {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}

#[inline]
pub(super) fn enter(mut scope: Box<Scope>) {
    scope.outer = ManuallyDrop::into_inner(CURRENT.take());
    CURRENT.set(ManuallyDrop::new(Some(scope)));
    DEPTH.set(DEPTH.get() + 1);
}

#[inline]
pub(super) fn leave() -> Box<Scope> {
    let scope = ManuallyDrop::into_inner(CURRENT.take());
    let mut scope = scope.expect("a turn is left by the thread that entered it");
    CURRENT.set(ManuallyDrop::new(scope.outer.take()));
    DEPTH.set(DEPTH.get() - 1);
    scope
}

/// Nesting depth of turns on this thread; 0 outside any turn.
#[inline]
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Whether this thread has run enough inline calls and should yield. If so, resets the count.
#[inline]
pub(crate) fn should_yield() -> bool {
    let max = match depth() {
        0 => INLINE_CALLS_OUTSIDE_MAX,
        _ => INLINE_CALLS_MAX,
    };
    let is_exhausted = INLINE_CALLS.get() >= max;
    if is_exhausted {
        INLINE_CALLS.set(0);
    }
    is_exhausted
}

/// Counts a call that runs inline.
#[inline]
pub(crate) fn count_inline_call() {
    INLINE_CALLS.set(INLINE_CALLS.get() + 1);
}

/// Counts a call for whose remote reply this thread busy-polled: it took as long as many inline calls.
#[inline]
pub(crate) fn count_awaited_call() {
    INLINE_CALLS.set(INLINE_CALLS.get() + AWAITED_CALL_WEIGHT);
}

/// Accesses this thread's current scope, if there is one.
#[inline]
pub(crate) fn with_current<T>(access: impl FnOnce(Option<&mut Scope>) -> T) -> T {
    access(CurrentScope::take().scope())
}

/// Whether this thread is inside a turn of an actor, so that waiting for the actor could deadlock.
pub(crate) enum Inside {
    No,
    /// In an exclusive turn.
    Exclusive,
    /// In a turn that shares the actor.
    Shared,
}

/// Whether this thread is inside a turn of `actor`.
pub(crate) fn inside(actor: &ActorId) -> Inside {
    with_current(|scope| {
        let mut scope = scope.as_deref();
        while let Some(inner) = scope {
            if inner.cell().is_of(actor) {
                // Outer turns of the same actor share it as well, or this one could not have started.
                return if inner.shared {
                    Inside::Shared
                } else {
                    Inside::Exclusive
                };
            }
            scope = inner.outer.as_deref();
        }
        Inside::No
    })
}

impl Scope {
    /// Takes an empty scope from the pool, or allocates one.
    #[inline]
    pub(super) fn fresh() -> Box<Self> {
        match ManuallyDrop::into_inner(POOL.take()) {
            Some(mut scope) => {
                POOL.set(ManuallyDrop::new(scope.outer.take()));
                POOLED.set(POOLED.get() - 1);
                scope
            }
            None => Self::empty(),
        }
    }

    #[cold]
    fn empty() -> Box<Self> {
        CLEANUP.with(|_| {});
        Box::new(Self {
            cell: None,
            call_context: CallContext::new(TenantId(0)),
            origin: None,
            shared: false,
            measure: None,
            outer: None,
        })
    }

    /// Clears the scope and returns it to the pool. Returns the turn's deadline.
    #[inline]
    pub(super) fn recycle(mut self: Box<Self>) -> Time {
        let deadline = self.call_context.deadline;
        self.call_context.clear();
        if self.origin.is_some() {
            self.origin = None;
        }
        if self.measure.is_some() {
            self.measure = None;
        }
        if POOLED.get() < POOLED_SCOPES_MAX {
            self.outer = ManuallyDrop::into_inner(POOL.take());
            POOL.set(ManuallyDrop::new(Some(self)));
            POOLED.set(POOLED.get() + 1);
        }
        deadline
    }
}

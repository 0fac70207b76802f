//! The turns that a thread is in, and the scopes that it keeps for later ones.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use elastin_types::{ActorId, TenantId};

use super::Scope;
use crate::call_context::CallContext;
use crate::shared_instance::SharedInstance;

/// How many scopes a thread keeps for later turns: inline calls nest less deep than this almost always.
const POOLED_MAX: u32 = 64;

/// How many calls a thread runs inline within turns before it lets others run, so that a turn which does nothing but call idle
/// actors lets go of its worker at times.
const INLINE_CALLS_MAX: u32 = 1024;

/// The same for threads outside, which have other tasks to run.
const INLINE_CALLS_OUTSIDE_MAX: u32 = 128;

/// As how many inline calls one counts whose reply came from another process while the thread waited.
const AWAITED_COUNTS: u32 = 16;

/// A list of scopes, each in `outer` of the one before it.
type List = Cell<ManuallyDrop<Option<Box<Scope>>>>;

thread_local! {
    // None of them has a destructor, because access to a variable that has one costs several times as much.
    /// The turns that this thread is in, innermost first.
    static CURRENT: List = const { Cell::new(ManuallyDrop::new(None)) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How many calls this thread has run inline since it last let others run.
    static INLINE_CALLS: Cell<u32> = const { Cell::new(0) };
    /// Scopes for later turns. INVARIANT: what is in the pool has nothing in it.
    static POOL: List = const { Cell::new(ManuallyDrop::new(None)) };
    static POOLED: Cell<u32> = const { Cell::new(0) };
    static CLEANUP: Cleanup = const { Cleanup };
}

/// Frees the pool when its thread ends.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        let mut pooled = ManuallyDrop::into_inner(POOL.take());
        // One by one: a long list would recurse.
        while let Some(mut scope) = pooled {
            pooled = scope.outer.take();
        }
    }
}

/// The innermost turn of this thread. It is out of its place until this is dropped; what is done with it meanwhile makes no
/// calls.
pub(super) struct Innermost(ManuallyDrop<Option<Box<Scope>>>);

impl Innermost {
    #[inline]
    pub(super) fn take() -> Self {
        Self(CURRENT.take())
    }

    #[inline]
    pub(super) fn scope(&mut self) -> Option<&mut Scope> {
        self.0.as_deref_mut()
    }
}

impl Drop for Innermost {
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

/// How many turns this thread is inside of: 0 outside any turn.
#[inline]
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Whether this thread has run so many calls inline that it should let others run. If so, it counts anew.
#[inline]
pub(crate) fn wants_pause() -> bool {
    let most = match depth() {
        0 => INLINE_CALLS_OUTSIDE_MAX,
        _ => INLINE_CALLS_MAX,
    };
    let pauses = INLINE_CALLS.get() >= most;
    if pauses {
        INLINE_CALLS.set(0);
    }
    pauses
}

/// Counts a call that runs inline.
#[inline]
pub(crate) fn count_inline_call() {
    INLINE_CALLS.set(INLINE_CALLS.get() + 1);
}

/// Counts a call whose reply this thread has waited for: that took as long as many inline ones.
#[inline]
pub(crate) fn count_awaited_call() {
    INLINE_CALLS.set(INLINE_CALLS.get() + AWAITED_COUNTS);
}

/// Shows the innermost turn of this thread, if there is one.
#[inline]
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&mut Scope>) -> T) -> T {
    look(Innermost::take().scope())
}

/// Whether this thread is inside a turn of an actor, so that waiting for it might be waiting for itself.
pub(crate) enum Inside {
    No,
    /// That turn has the actor for itself.
    Alone,
    /// That turn shares the actor with others.
    Interleaved(SharedInstance),
}

/// Whether this thread is inside a turn of that actor.
pub(crate) fn inside(actor: &ActorId) -> Inside {
    with_current(|scope| {
        let mut scope = scope.as_deref();
        while let Some(inner) = scope {
            if inner.cell().is_of(actor) {
                // Turns further out that are of the same actor share it as well, or this one would not have begun.
                return inner.shared.clone().map_or(Inside::Alone, Inside::Interleaved);
            }
            scope = inner.outer.as_deref();
        }
        Inside::No
    })
}

/// The actor whose turn this thread is in.
pub(crate) fn current_actor() -> Option<ActorId> {
    with_current(|scope| Some(scope?.cell().id()))
}

impl Scope {
    /// A scope with nothing in it.
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
            shared: None,
            measure: None,
            woken: false,
            outer: None,
        })
    }

    /// Keeps a scope that is not needed any longer.
    #[inline]
    pub(super) fn recycle(mut self: Box<Self>) {
        self.call_context.clear();
        self.woken = false;
        if self.shared.is_some() {
            self.shared = None;
        }
        if self.origin.is_some() {
            self.origin = None;
        }
        if self.measure.is_some() {
            self.measure = None;
        }
        if POOLED.get() < POOLED_MAX {
            self.outer = ManuallyDrop::into_inner(POOL.take());
            POOL.set(ManuallyDrop::new(Some(self)));
            POOLED.set(POOLED.get() + 1);
        }
    }
}

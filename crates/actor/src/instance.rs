//! An actor in memory: its state and what each of its turns needs.

use std::sync::Arc;
use std::task::Waker;

use crate::host::CellHandle;

/// An actor's state, with what its turns need. Whoever owns the box has the actor's turn: there is only one, so turns are
/// exclusive by construction. Turns that only borrow the actor share the box by way of a [`SharedInstance`](crate::SharedInstance).
pub struct Instance<A> {
    /// The application's state.
    pub state: A,
    /// The actor's place, shared to the turn's scope while a turn runs.
    cell: Option<Arc<dyn CellHandle>>,
    /// Wakes this actor's suspended turn. Kept, because to make one costs more than to move it; behind a pointer, because many
    /// actors never need one. A counted one, because the code that drops it is small, which handlers' futures have many copies of.
    waker: Option<Arc<Waker>>,
    pub(crate) sampling: Sampling,
    /// Whether a turn that may have changed the state has run since this was last cleared.
    pub changed: bool,
    /// Whether a turn has run since it was last asked.
    pub used: UsedSince,
}

/// Which turns are measured: one in so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// How many more turns go unmeasured.
    unmeasured: u16,
    /// How many turns one measured turn stands for.
    stride: u16,
}

impl Sampling {
    /// Whether the turn that begins now is measured, and if so how many turns it stands for.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.unmeasured > 0 {
            self.unmeasured -= 1;
            return None;
        }
        self.unmeasured = self.stride - 1;
        Some(u32::from(self.stride))
    }

    /// Sets how many turns one measured turn stands for from the next one on.
    pub(crate) fn set_stride(&mut self, stride: u16) {
        assert!(stride > 0, "every measured turn stands at least for itself");
        self.stride = stride;
        self.unmeasured = stride - 1;
    }
}

/// Whether a turn has run since each of those who want to know has last asked. One byte, so that a turn sets all at once.
#[derive(Clone, Copy, Debug)]
pub struct UsedSince(u8);

impl UsedSince {
    /// CoarseInstant the last look for idle actors.
    pub const SWEEP: u8 = 1;
    /// CoarseInstant the last look at the state.
    pub const LOOK: u8 = 2;

    /// A turn has run, for all.
    pub(crate) const ALL: Self = Self(Self::SWEEP | Self::LOOK);

    /// Whether a turn has run, for one of them; from now on none has.
    pub fn take(&mut self, whose: u8) -> bool {
        let used = self.0 & whose != 0;
        self.0 &= !whose;
        used
    }
}

impl<A> Instance<A> {
    /// An actor that is about to be activated.
    pub fn new(state: A, cell: Arc<dyn CellHandle>) -> Box<Self> {
        Box::new(Self {
            state,
            cell: Some(cell),
            waker: None,
            // An actor that is called once and never again is not worth a table of its callers.
            sampling: Sampling {
                unmeasured: 1,
                stride: 1,
            },
            changed: false,
            used: UsedSince::ALL,
        })
    }

    /// Whether the turn that begins now is measured, and if so how many turns it stands for.
    #[inline]
    pub(crate) fn measure_next(&mut self) -> Option<u32> {
        self.used = UsedSince::ALL;
        self.sampling.next()
    }

    /// The waker, for a turn that is polled.
    #[inline]
    pub fn take_waker(&mut self) -> Arc<Waker> {
        match self.waker.take() {
            Some(waker) => waker,
            None => self.new_waker(),
        }
    }

    #[cold]
    fn new_waker(&self) -> Arc<Waker> {
        Arc::new(self.cell().clone().waker())
    }

    /// Makes the waker of an actor that is about to be shared.
    pub(crate) fn ensure_waker(&mut self) {
        if self.waker.is_none() {
            self.waker = Some(self.new_waker());
        }
    }

    /// Frees the waker of an actor that may stay idle for long.
    pub fn forget_waker(&mut self) {
        self.waker = None;
    }

    /// The cell, for the scope of a turn.
    #[inline]
    pub(crate) fn take_cell(&mut self) -> Arc<dyn CellHandle> {
        self.cell.take().expect("an actor at rest has its cell")
    }

    /// The waker, for a turn that shares the actor with others.
    #[inline]
    pub fn waker(&self) -> &Waker {
        self.waker.as_deref().expect("a shared actor keeps its waker")
    }

    /// The cell, for the scope of a turn that shares the actor with others.
    #[inline]
    pub(crate) fn cell(&self) -> &Arc<dyn CellHandle> {
        self.cell.as_ref().expect("a shared actor keeps its cell")
    }

    /// Gives back the cell, which a turn or a visit had borrowed.
    #[inline]
    pub(crate) fn restore_cell(&mut self, cell: Arc<dyn CellHandle>) {
        self.cell = Some(cell);
    }

    /// Gives back the waker, which a turn that is polled had borrowed.
    #[inline]
    pub fn restore_waker(&mut self, waker: Arc<Waker>) {
        self.waker = Some(waker);
    }
}

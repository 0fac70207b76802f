//! An actor in memory: its state and per-turn resources.

use std::sync::Arc;
use std::task::Waker;

use crate::host::CellHandle;

/// An actor's state, with the resources of its turns. Owning the box grants the right to run a turn: there is only one
/// box, so turns are exclusive by construction. Turns with `&self` share it through a
/// [`SharedInstance`](crate::SharedInstance).
pub struct Instance<A> {
    /// The application's state.
    pub state: A,
    /// The actor's cell, moved into the turn's scope while an exclusive turn runs.
    cell: Option<Arc<dyn CellHandle>>,
    /// Wakes this actor's suspended turn. Cached, because moving a waker is cheaper than creating one. Behind a
    /// pointer, because many actors never need one. An `Arc`, because its drop glue is small and every handler's future
    /// inlines it.
    waker: Option<Arc<Waker>>,
    pub(crate) sampling: Sampling,
    /// Whether a turn that may have changed the state has run since this was last cleared.
    pub changed: bool,
    /// Whether a turn has run since the last sweep for idle actors.
    pub used_since_sweep: bool,
    /// Whether a turn has run since the state's size and references were last reported.
    pub used_since_report: bool,
}

/// Sampling of turns: one in `stride` is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// Turns left before the next measured one.
    unmeasured: u16,
    /// The weight of the next measured turn.
    stride: u16,
}

impl Sampling {
    /// The weight of the turn that begins now; `None` if it is not measured.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.unmeasured > 0 {
            self.unmeasured -= 1;
            return None;
        }
        self.unmeasured = self.stride - 1;
        Some(u32::from(self.stride))
    }

    /// Sets the weight of the measured turns from the next one on.
    pub(crate) fn set_stride(&mut self, stride: u16) {
        assert!(stride > 0, "a measured turn has a weight of at least 1");
        self.stride = stride;
        self.unmeasured = stride - 1;
    }
}

impl<A> Instance<A> {
    /// The instance of an actor that is about to be activated.
    pub fn new(state: A, cell: Arc<dyn CellHandle>) -> Box<Self> {
        Box::new(Self {
            state,
            cell: Some(cell),
            waker: None,
            // Skip the first turn: an actor that is called only once is not worth a table of its callers.
            sampling: Sampling {
                unmeasured: 1,
                stride: 1,
            },
            changed: false,
            used_since_sweep: true,
            used_since_report: true,
        })
    }

    /// Records that a turn has run.
    #[inline]
    pub(crate) fn mark_used(&mut self) {
        self.used_since_sweep = true;
        self.used_since_report = true;
    }

    /// The weight of the turn that begins now; `None` if it is not measured.
    #[inline]
    pub(crate) fn measure_next(&mut self) -> Option<u32> {
        self.mark_used();
        self.sampling.next()
    }

    /// Takes the waker, for a turn that is polled.
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

    /// Creates the waker of an actor that is about to be shared.
    pub(crate) fn ensure_waker(&mut self) {
        if self.waker.is_none() {
            self.waker = Some(self.new_waker());
        }
    }

    /// Drops the waker of an actor that may stay idle for long.
    pub fn forget_waker(&mut self) {
        self.waker = None;
    }

    /// Takes the cell, for the scope of an exclusive turn.
    #[inline]
    pub(crate) fn take_cell(&mut self) -> Arc<dyn CellHandle> {
        self.cell.take().expect("an idle actor has its cell")
    }

    /// The waker, for a turn that shares the actor.
    #[inline]
    pub fn waker(&self) -> &Waker {
        self.waker.as_deref().expect("a shared actor keeps its waker")
    }

    /// The cell, for the scope of a turn that shares the actor.
    #[inline]
    pub(crate) fn cell(&self) -> &Arc<dyn CellHandle> {
        self.cell.as_ref().expect("a shared actor keeps its cell")
    }

    /// Restores the cell after a turn or batch.
    #[inline]
    pub(crate) fn restore_cell(&mut self, cell: Arc<dyn CellHandle>) {
        self.cell = Some(cell);
    }

    /// Restores the waker after a poll.
    #[inline]
    pub fn restore_waker(&mut self, waker: Arc<Waker>) {
        self.waker = Some(waker);
    }
}

//! What of an activation is behind a lock: its mail, and its state whenever the actor is not idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use elastin_actor::{Instance, SaveDone, Scope, Timer, TimerId, WakeId};
use elastin_types::{ActivationEpoch, ChainId, Time};
use parking_lot::MutexGuard;

use crate::FreezeDone;
use crate::cell::flags::Mark;
use crate::cell::idle_slot::IdleSlot;
use crate::cell::interleave::state::Interleaved;
use crate::cell::mailbox::{AnyTurn, Mailbox};
use crate::scheduler::caller_resume::ResumeBy;

/// What of an activation is behind a lock, while somebody has the lock.
///
/// The actor's instance is in exactly one place: idle in the cell's atomic cell, with whoever runs a turn, or in one of
/// `waiting`, `suspended`, `sharing`, `saving` and `freeze` here.
///
/// INVARIANT: it is of the present activation, unless [`Mark::Orphan`] is set: then whoever runs a turn has one of an activation
/// that was discarded.
pub(crate) struct CellGuard<'s, A> {
    kept: MutexGuard<'s, CellState<A>>,
    /// What does not fit in with the lock but is only changed under it.
    beside: &'s IdleSlot<Instance<A>>,
}

/// What is kept with the lock itself.
pub(crate) struct CellState<A> {
    /// The activation, if there is one.
    epoch: ActivationEpoch,
    /// Everything that most actors don't need most of the time.
    rest: Option<Box<ColdState<A>>>,
}

/// What only some actors have, and only at times.
pub(crate) struct ColdState<A> {
    pub(crate) queue: Mailbox<A>,
    /// The instance that waits for a worker.
    pub(crate) waiting: Option<Box<Instance<A>>>,
    pub(crate) suspended: Option<Suspended<A>>,
    /// Somebody looks after the callers to whom turns are caller resume.
    pub(crate) watched: bool,
    /// The turns that share the actor. Boxed, because few actors have it.
    pub(crate) sharing: Option<Box<Interleaved<A>>>,
    pub(crate) saving: Option<Saving<A>>,
    pub(crate) saves: u64,
    /// A save that a turn has asked for is under way.
    pub(crate) requested: Option<Requested>,
    pub(crate) freeze: Freeze<A>,
    /// Who waits for room in the queue.
    pub(crate) room: Vec<Waker>,
    pub(crate) ending: Ending,
    pub(crate) timers: BTreeMap<TimerId, ActorTimer>,
    pub(crate) next_timer: u64,
}

/// A turn that waits for something.
pub(crate) struct Suspended<A> {
    pub(crate) turn: AnyTurn<A>,
    pub(crate) scope: Box<Scope>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) run_by: ResumeBy,
}

impl<A> Suspended<A> {
    /// Whether it was woken since its last poll began.
    pub(crate) fn is_woken(&self, mailbox: &CellGuard<'_, A>) -> bool {
        self.scope.is_woken() || mailbox.is(Mark::Woken)
    }
}

/// A save that is under way, and the turns that are over but whose callers may not know before it has ended. None, if
/// the activation is about to end.
pub(crate) struct Saving<A> {
    pub(crate) number: u64,
    pub(crate) epoch: ActivationEpoch,
    pub(crate) instance: Box<Instance<A>>,
    pub(crate) turns: Vec<AnyTurn<A>>,
}

/// What turns have asked to be saved while an earlier save that they asked for is under way.
#[derive(Default)]
pub(crate) struct Requested {
    /// The state as it was when the last one asked.
    pub(crate) state: Option<Bytes>,
    pub(crate) done: Vec<SaveDone>,
}

/// How far a freeze is.
pub(crate) enum Freeze<A> {
    No,
    /// The activation freezes at its next turn boundary.
    Asked {
        done: FreezeDone,
        timer: WakeId,
        /// The hook before a move has run or is in the queue.
        hooked: bool,
    },
    Frozen(Box<Instance<A>>),
}

/// Whether the activation is to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    Asked,
    /// The hook has run or is in the queue.
    Hooked,
}

/// A timer of an activation.
pub(crate) struct ActorTimer {
    pub(crate) timer: Timer,
    pub(crate) wake: WakeId,
}

impl<A> CellState<A> {
    pub(crate) fn new() -> Self {
        Self {
            epoch: ActivationEpoch::default(),
            rest: None,
        }
    }
}

impl<'s, A> CellGuard<'s, A> {
    #[inline]
    pub(crate) fn new(kept: MutexGuard<'s, CellState<A>>, beside: &'s IdleSlot<Instance<A>>) -> Self {
        Self { kept, beside }
    }

    /// The activation; `None` when there is none.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<ActivationEpoch> {
        self.is(Mark::Active).then_some(self.kept.epoch)
    }

    /// CoarseInstant when the activation is here.
    pub(crate) fn since(&self) -> Time {
        self.beside.since.get()
    }

    /// An activation begins.
    pub(crate) fn open(&mut self, epoch: ActivationEpoch, now: Time) {
        self.kept.epoch = epoch;
        self.beside.since.set(now);
        self.set(Mark::Active, true);
    }

    /// The activation is over; gives its epoch.
    pub(crate) fn close(&mut self) -> Option<ActivationEpoch> {
        self.set(Mark::Active, false).then_some(self.kept.epoch)
    }

    #[inline]
    pub(crate) fn is(&self, mark: Mark) -> bool {
        self.beside.marks.has(mark)
    }

    /// Sets a mark or takes it away; says whether it was set before.
    #[inline]
    pub(crate) fn set(&mut self, mark: Mark, is_so: bool) -> bool {
        self.beside.marks.set(mark, is_so)
    }

    pub(crate) fn rest(&mut self) -> &mut ColdState<A> {
        self.kept.rest.get_or_insert_with(|| Box::new(ColdState::new()))
    }

    pub(crate) fn rest_if_any(&mut self) -> Option<&mut ColdState<A>> {
        self.kept.rest.as_deref_mut()
    }

    /// Takes everything that belongs to an activation that is over.
    pub(crate) fn take_rest(&mut self) -> Option<Box<ColdState<A>>> {
        self.kept.rest.take()
    }

    /// Frees what an idle actor does not need.
    pub(crate) fn shrink(&mut self) {
        if self.kept.rest.as_ref().is_some_and(|rest| rest.is_unused()) {
            self.kept.rest = None;
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.kept.rest.as_ref().map_or(0, |rest| rest.queue.len())
    }

    /// Whether the instance waits for a worker.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.kept.rest.as_ref().is_some_and(|rest| rest.waiting.is_some())
    }

    /// Takes the instance that waits for a worker.
    #[inline]
    pub(crate) fn take_waiting(&mut self) -> Option<Box<Instance<A>>> {
        self.kept.rest.as_mut()?.waiting.take()
    }

    /// The turn that waits, if there is one.
    pub(crate) fn suspended(&mut self) -> Option<&mut Suspended<A>> {
        self.kept.rest.as_mut()?.suspended.as_mut()
    }

    /// Whether the instance waits for something that is not a worker: for what a turn waits for, a save, or the end of a move.
    pub(crate) fn waits_for_outside(&self) -> bool {
        let Some(rest) = self.kept.rest.as_deref() else {
            return false;
        };
        let run_by = rest.suspended.as_ref().map(|suspended| &suspended.run_by);
        let caller_goes_on = matches!(run_by, Some(ResumeBy::Caller(caller)) if caller.is_woken());
        let waits = self.can_be_woken() || rest.saving.is_some() || matches!(rest.freeze, Freeze::Frozen(_));
        waits && !caller_goes_on
    }

    /// Whether turns wait for something, and nobody polls one of them right now.
    pub(crate) fn can_be_woken(&self) -> bool {
        let Some(rest) = &self.kept.rest else { return false };
        rest.suspended.is_some() || rest.sharing.as_ref().is_some_and(|sharing| !sharing.polled)
    }
}

impl<A> ColdState<A> {
    fn new() -> Self {
        Self {
            queue: Mailbox::new(),
            waiting: None,
            suspended: None,
            watched: false,
            sharing: None,
            saving: None,
            saves: 0,
            requested: None,
            freeze: Freeze::No,
            room: Vec::new(),
            ending: Ending::No,
            timers: BTreeMap::new(),
            next_timer: 0,
        }
    }

    fn is_unused(&self) -> bool {
        self.queue.is_empty()
            && self.waiting.is_none()
            && self.suspended.is_none()
            && self.sharing.is_none()
            && self.saving.is_none()
            && self.requested.is_none()
            && matches!(self.freeze, Freeze::No)
            && self.room.is_empty()
            && self.ending == Ending::No
            && self.timers.is_empty()
    }

    /// Whether a turn that has begun and waits belongs to this chain of calls.
    pub(crate) fn belongs(&self, chain: ChainId) -> bool {
        match (&self.suspended, &self.sharing) {
            (Some(suspended), _) => suspended.scope.chain() == Some(chain),
            (None, Some(sharing)) => sharing.belongs(chain),
            (None, None) => false,
        }
    }

    /// Takes the calls out of the queue that belong to a chain which a turn that has begun waits for: they would wait for
    /// themselves. Those that may run beside that turn do so; gives the others.
    pub(crate) fn take_cycles(&mut self, chain: ChainId) -> Vec<AnyTurn<A>> {
        let in_chain = |turn: &AnyTurn<A>| {
            turn.message_context()
                .is_some_and(|message_context| !message_context.one_way() && message_context.chain() == Some(chain))
        };
        let Some(sharing) = &mut self.sharing else {
            return self.queue.take_matching(|turn, _| in_chain(turn));
        };
        let may_join = |turn: &AnyTurn<A>, earlier: &[AnyTurn<A>]| turn.shared() && !has_earlier(turn, earlier);
        let joining = self
            .queue
            .take_matching(|turn, earlier| in_chain(turn) && may_join(turn, earlier));
        let mut refused = self.queue.take_matching(|turn, _| in_chain(turn));
        for turn in joining {
            match sharing.has_room() {
                true => sharing.join(turn),
                false => refused.push(turn),
            }
        }
        refused
    }
}

/// Whether a message of the same sender is among those.
fn has_earlier<A>(turn: &AnyTurn<A>, earlier: &[AnyTurn<A>]) -> bool {
    let caller = turn.message_context().map(|message_context| message_context.caller());
    let same = |other: &AnyTurn<A>| other.message_context().map(|message_context| message_context.caller()) == caller;
    earlier.iter().any(same)
}

//! Activation state guarded by the cell's lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use elastin_actor::{Instance, SaveDone, Scope, Ticket, Timer, TimerId, WakeId};
use elastin_types::{ActivationEpoch, ChainId, Time};
use parking_lot::MutexGuard;

use crate::FreezeDone;
use crate::cell::idle_slot::IdleSlot;
use crate::cell::interleave::state::Interleaved;
use crate::cell::lifecycle::{Event, Flag, Lifecycle, MESSAGES, ORPHAN, REPORT};
use crate::cell::mailbox::{AnyTurn, Mailbox};
use crate::scheduler::caller_resume::CallerResume;

/// Activation state, accessed while holding the cell's lock.
///
/// The actor's instance is in exactly one place: in the cell's idle slot, with the thread that runs a turn, or in one
/// of `waiting`, `suspended`, `interleaved`, `saving` and `frozen` here.
///
/// INVARIANT: the instance belongs to the current activation, unless the cell [is orphaned](CellGuard::is_orphaned). In
/// that case the running turn holds the instance of a discarded activation.
pub(crate) struct CellGuard<'s, A> {
    state: MutexGuard<'s, CellState<A>>,
    /// Fields that do not fit beside the lock word but change only under the lock.
    slot: &'s IdleSlot<Instance<A>>,
}

/// State stored inside the lock.
pub(crate) struct CellState<A> {
    /// The activation's epoch; meaningful only while there is an activation.
    epoch: ActivationEpoch,
    /// State that most actors do not need most of the time.
    cold: Option<Box<ColdState<A>>>,
}

/// State that only some actors have, and only at times.
pub(crate) struct ColdState<A> {
    pub(crate) mailbox: Mailbox<A>,
    /// The instance, while it waits for a worker.
    pub(crate) waiting: Option<Box<Instance<A>>>,
    pub(crate) suspended: Option<Suspended<A>>,
    /// Whether the resume watchdog watches this cell.
    pub(crate) watched: bool,
    /// Turns that share the actor. Boxed, because few actors have any.
    pub(crate) interleaved: Option<Box<Interleaved<A>>>,
    pub(crate) saving: Option<Saving<A>>,
    /// Set while a save requested by a turn is in flight.
    pub(crate) save_requests: Option<SaveRequests>,
    /// The freeze in progress.
    pub(crate) freeze: Option<FreezeRequest>,
    /// The instance of a frozen activation.
    pub(crate) frozen: Option<Box<Instance<A>>>,
    /// Wakers of senders that wait for room in the mailbox.
    pub(crate) room_waiters: Vec<Waker>,
    /// The deactivation hook is queued or has run.
    pub(crate) end_hook_queued: bool,
    pub(crate) timers: BTreeMap<TimerId, ActorTimer>,
    pub(crate) next_timer: u64,
}

/// A suspended turn.
pub(crate) struct Suspended<A> {
    pub(crate) turn: AnyTurn<A>,
    pub(crate) scope: Box<Scope>,
    pub(crate) waker: Arc<Waker>,
    /// The caller that resumes it; without one, a worker does.
    pub(crate) caller: Option<CallerResume>,
}

/// A save in flight, with the finished turns whose replies wait for it. There are no turns if the activation is ending.
pub(crate) struct Saving<A> {
    pub(crate) instance: Box<Instance<A>>,
    pub(crate) turns: Vec<AnyTurn<A>>,
}

/// Saves that turns requested while an earlier requested save is in flight.
#[derive(Default)]
pub(crate) struct SaveRequests {
    /// The state as of the latest request.
    pub(crate) state: Option<Bytes>,
    pub(crate) done: Vec<SaveDone>,
}

/// A freeze that was requested and has not reached a turn boundary.
pub(crate) struct FreezeRequest {
    pub(crate) done: FreezeDone,
    /// Cancels the freeze at its deadline.
    pub(crate) timer: WakeId,
    /// The before-move hook is queued or has run.
    pub(crate) hook_queued: bool,
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
            cold: None,
        }
    }
}

impl<'s, A> CellGuard<'s, A> {
    #[inline]
    pub(crate) fn new(state: MutexGuard<'s, CellState<A>>, slot: &'s IdleSlot<Instance<A>>) -> Self {
        Self { state, slot }
    }

    /// The epoch of the current activation.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<ActivationEpoch> {
        self.lifecycle().has_activation().then_some(self.state.epoch)
    }

    #[inline]
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.slot.flags.lifecycle()
    }

    /// Performs a transition of the lifecycle and derives the attention bits.
    ///
    /// # Panics
    /// If the event is illegal in the current state.
    pub(crate) fn transition(&mut self, event: Event) {
        let from = self.lifecycle();
        let Some(to) = from.after(event) else {
            panic!("{event:?} is illegal for an activation that is {from:?}");
        };
        self.slot.flags.set_lifecycle(to);
        let kept = match from.has_activation() && to.has_activation() {
            true => MESSAGES | REPORT | ORPHAN,
            false => ORPHAN,
        };
        self.slot.set_attention(self.slot.attention() & kept | to.attention());
    }

    /// Whether a turn of a discarded activation still runs.
    #[inline]
    pub(crate) fn is_orphaned(&self) -> bool {
        self.slot.attention() & ORPHAN != 0
    }

    /// When the activation began.
    pub(crate) fn since(&self) -> Time {
        self.slot.since.get()
    }

    /// Begins an activation.
    pub(crate) fn open(&mut self, epoch: ActivationEpoch, now: Time) {
        self.transition(Event::Activate);
        self.state.epoch = epoch;
        self.slot.since.set(now);
        self.set(Flag::Woken, false);
    }

    #[inline]
    pub(crate) fn is(&self, flag: Flag) -> bool {
        self.slot.flags.has(flag)
    }

    /// Sets or clears a flag; returns whether it was set before.
    #[inline]
    pub(crate) fn set(&mut self, flag: Flag, on: bool) -> bool {
        self.slot.flags.set(flag, on)
    }

    pub(crate) fn cold(&mut self) -> &mut ColdState<A> {
        self.state.cold.get_or_insert_with(|| Box::new(ColdState::new()))
    }

    pub(crate) fn cold_if_any(&mut self) -> Option<&mut ColdState<A>> {
        self.state.cold.as_deref_mut()
    }

    /// Takes the cold state of an activation that has ended.
    pub(crate) fn take_cold(&mut self) -> Option<Box<ColdState<A>>> {
        self.state.cold.take()
    }

    /// Frees the cold state if it is unused.
    pub(crate) fn shrink(&mut self) {
        if self.state.cold.as_ref().is_some_and(|cold| cold.is_unused()) {
            self.state.cold = None;
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.state.cold.as_ref().map_or(0, |cold| cold.mailbox.len())
    }

    /// Whether the instance waits for a worker.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.cold.as_ref().is_some_and(|cold| cold.waiting.is_some())
    }

    /// Takes the instance that waits for a worker.
    #[inline]
    pub(crate) fn take_waiting(&mut self) -> Option<Box<Instance<A>>> {
        self.state.cold.as_mut()?.waiting.take()
    }

    /// The suspended turn, if the caller with this ticket resumes it.
    pub(crate) fn suspended_for(&mut self, ticket: Ticket) -> Option<&mut Suspended<A>> {
        let suspended = self.state.cold.as_mut()?.suspended.as_mut()?;
        (suspended.caller.as_ref()?.ticket == ticket).then_some(suspended)
    }

    /// The interleaved turns of a shared actor.
    ///
    /// # Panics
    /// If the actor is not shared.
    pub(crate) fn interleaved(&mut self) -> &mut Interleaved<A> {
        let interleaved = self.cold().interleaved.as_mut();
        interleaved.expect("a shared actor has interleaved turns")
    }

    /// The interleaved turns, if no thread is polling them.
    pub(crate) fn unpolled(&mut self) -> Option<&mut Interleaved<A>> {
        let interleaved = self.cold_if_any()?.interleaved.as_deref_mut();
        interleaved.filter(|interleaved| !interleaved.polled)
    }

    /// Whether the instance waits for something other than a worker: a suspended turn's event, a save, or the end of a
    /// move.
    pub(crate) fn waits_externally(&self) -> bool {
        let Some(cold) = self.state.cold.as_deref() else {
            return false;
        };
        let caller = cold.suspended.as_ref().and_then(|suspended| suspended.caller.as_ref());
        let caller_resumes = caller.is_some_and(|caller| caller.waker.is_none());
        let waits = self.can_be_woken() || cold.saving.is_some() || cold.frozen.is_some();
        waits && !caller_resumes
    }

    /// Whether there are suspended turns and none of them is being polled right now.
    pub(crate) fn can_be_woken(&self) -> bool {
        let Some(cold) = &self.state.cold else { return false };
        cold.suspended.is_some() || cold.interleaved.as_ref().is_some_and(|interleaved| !interleaved.polled)
    }
}

impl<A> ColdState<A> {
    fn new() -> Self {
        Self {
            mailbox: Mailbox::new(),
            waiting: None,
            suspended: None,
            watched: false,
            interleaved: None,
            saving: None,
            save_requests: None,
            freeze: None,
            frozen: None,
            room_waiters: Vec::new(),
            end_hook_queued: false,
            timers: BTreeMap::new(),
            next_timer: 0,
        }
    }

    fn is_unused(&self) -> bool {
        self.mailbox.is_empty()
            && self.waiting.is_none()
            && self.suspended.is_none()
            && self.interleaved.is_none()
            && self.saving.is_none()
            && self.save_requests.is_none()
            && self.freeze.is_none()
            && self.frozen.is_none()
            && self.room_waiters.is_empty()
            && !self.end_hook_queued
            && self.timers.is_empty()
    }

    /// Whether a suspended turn belongs to this chain of calls.
    pub(crate) fn belongs(&self, chain: ChainId) -> bool {
        match (&self.suspended, &self.interleaved) {
            (Some(suspended), _) => suspended.scope.chain() == Some(chain),
            (None, Some(interleaved)) => interleaved.belongs(chain),
            (None, None) => false,
        }
    }

    /// Takes the calls of a chain out of the mailbox: a suspended turn of that chain waits for them, so they would
    /// deadlock. Calls that may interleave with that turn are admitted; the others are returned.
    pub(crate) fn take_cycles(&mut self, chain: ChainId) -> Vec<AnyTurn<A>> {
        let in_chain = |turn: &AnyTurn<A>| {
            turn.message_context()
                .is_some_and(|message_context| !message_context.one_way() && message_context.chain() == Some(chain))
        };
        let Some(interleaved) = &mut self.interleaved else {
            return self.mailbox.take_matching(|turn, _| in_chain(turn));
        };
        let may_join = |turn: &AnyTurn<A>, earlier: &[AnyTurn<A>]| turn.shared() && !has_earlier(turn, earlier);
        let joining = self
            .mailbox
            .take_matching(|turn, earlier| in_chain(turn) && may_join(turn, earlier));
        let mut refused = self.mailbox.take_matching(|turn, _| in_chain(turn));
        for turn in joining {
            match interleaved.has_room() {
                true => interleaved.join(turn),
                false => refused.push(turn),
            }
        }
        refused
    }
}

/// Whether an earlier message has the same sender.
pub(crate) fn has_earlier<'a, A: 'a>(turn: &AnyTurn<A>, earlier: impl IntoIterator<Item = &'a AnyTurn<A>>) -> bool {
    let caller = turn.message_context().map(|message_context| message_context.caller());
    let same = |other: &AnyTurn<A>| other.message_context().map(|message_context| message_context.caller()) == caller;
    earlier.into_iter().any(same)
}

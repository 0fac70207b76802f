//! Interleaved turns of an actor: each borrows it as `&self`, and while one is suspended others run.

use std::collections::VecDeque;
use std::task::Waker;

use elastin_actor::{Scope, SharedInstance};
use elastin_types::{CallError, ChainId};

use crate::cell::mailbox::AnyTurn;
use crate::tuning::INTERLEAVED_MAX;

/// The interleaved turns of an actor, as long as there are any.
///
/// INVARIANT: the thread that polls one of them has set `polled`, and no other thread polls meanwhile. So turns of an
/// actor interleave where they suspend, but never run concurrently.
pub(crate) struct Interleaved<A> {
    pub(crate) shared: SharedInstance,
    pub(crate) polled: bool,
    slots: Vec<Slot<A>>,
    /// Unused slots.
    free: Vec<usize>,
    /// Slots whose turns were woken, oldest first.
    woken: VecDeque<usize>,
    /// Calls that turns in here wait for: they begin before anything in the mailbox.
    joining: VecDeque<AnyTurn<A>>,
    /// Finished turns that may have seen unsaved changes.
    pub(crate) unsaved: Vec<AnyTurn<A>>,
    /// The turns whose replies wait for the save in flight.
    pub(crate) saving: Option<Vec<AnyTurn<A>>>,
    /// Set when the instance can no longer be trusted: the error for turns that have not finished.
    pub(crate) lost: Option<CallError>,
}

/// A suspended turn.
pub(crate) struct InterleavedTurn<A> {
    pub(crate) turn: AnyTurn<A>,
    pub(crate) scope: Box<Scope>,
    /// Wakes this turn alone. Without it the turn is woken by the actor's own waker, which suffices while it is alone.
    pub(crate) waker: Option<Waker>,
}

struct Slot<A> {
    /// `None` while the turn is polled, and while the slot is unused.
    interleaved_turn: Option<InterleavedTurn<A>>,
    chain: Option<ChainId>,
    /// Whether the slot is in the list of woken ones.
    is_woken: bool,
    /// The waker of this slot while its turn does not hold it.
    waker: Option<Waker>,
}

impl<A> Interleaved<A> {
    pub(crate) fn new(shared: SharedInstance, polled: bool) -> Self {
        Self {
            shared,
            polled,
            slots: Vec::new(),
            free: Vec::new(),
            woken: VecDeque::new(),
            joining: VecDeque::new(),
            unsaved: Vec::new(),
            saving: None,
            lost: None,
        }
    }

    /// How many turns have begun and not finished.
    pub(crate) fn begun(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is room for another turn.
    pub(crate) fn has_room(&self) -> bool {
        self.begun() + self.joining.len() < INTERLEAVED_MAX
    }

    /// Whether the actor can become exclusive again.
    pub(crate) fn is_over(&self) -> bool {
        self.begun() == 0 && self.joining.is_empty() && self.unsaved.is_empty() && self.saving.is_none()
    }

    /// Whether a turn that has begun belongs to this chain of calls.
    pub(crate) fn belongs(&self, chain: ChainId) -> bool {
        self.slots.iter().any(|slot| slot.chain == Some(chain))
    }

    /// Admits a call that a turn in here waits for.
    pub(crate) fn join(&mut self, turn: AnyTurn<A>) {
        self.joining.push_back(turn);
    }

    pub(crate) fn next_joining(&mut self) -> Option<AnyTurn<A>> {
        self.joining.pop_front()
    }

    /// Whether a turn was woken or waits to begin.
    pub(crate) fn has_work(&self) -> bool {
        !self.woken.is_empty() || !self.joining.is_empty()
    }

    /// Reserves a slot for a turn.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                interleaved_turn: None,
                chain: None,
                is_woken: false,
                waker: None,
            });
            self.slots.len() - 1
        })
    }

    /// The waker of a slot, for a turn about to be polled; `None` if the actor's own waker suffices.
    pub(crate) fn waker(&mut self, slot: usize, make: impl FnOnce() -> Waker) -> Option<Waker> {
        let known = self.slots[slot].waker.take();
        match known {
            None if self.begun() > 1 => Some(make()),
            known => known,
        }
    }

    /// Stores a suspended turn. Returns whether its chain was not known before.
    pub(crate) fn put(&mut self, slot: usize, interleaved_turn: InterleavedTurn<A>) -> bool {
        let chain = interleaved_turn.scope.chain();
        let slot = &mut self.slots[slot];
        slot.interleaved_turn = Some(interleaved_turn);
        std::mem::replace(&mut slot.chain, chain) != chain
    }

    /// Frees the slot of a finished turn.
    pub(crate) fn release(&mut self, slot: usize, waker: Option<Waker>) {
        self.free.push(slot);
        let slot = &mut self.slots[slot];
        slot.chain = None;
        slot.waker = waker.or(slot.waker.take());
    }

    /// Wakes the turn in a slot. A waker may outlive its turn; the slot's next turn is then polled once spuriously.
    pub(crate) fn wake(&mut self, slot: usize) {
        if let Some(known) = self.slots.get_mut(slot)
            && !std::mem::replace(&mut known.is_woken, true)
        {
            self.woken.push_back(slot);
        }
    }

    /// Wakes the turns that have no waker of their own.
    pub(crate) fn wake_turns_without_waker(&mut self) {
        for slot in 0..self.slots.len() {
            if matches!(&self.slots[slot].interleaved_turn, Some(interleaved_turn) if interleaved_turn.waker.is_none())
            {
                self.wake(slot);
            }
        }
    }

    /// Takes out a turn that was woken.
    pub(crate) fn next_woken(&mut self) -> Option<(usize, InterleavedTurn<A>)> {
        while let Some(woken) = self.woken.pop_front() {
            let slot = &mut self.slots[woken];
            slot.is_woken = false;
            if let Some(interleaved_turn) = slot.interleaved_turn.take() {
                return Some((woken, interleaved_turn));
            }
        }
        None
    }

    /// Splits it into the turns that are left.
    pub(crate) fn into_unfinished(self) -> Unfinished<A> {
        let waiting = self.slots.into_iter().filter_map(|slot| slot.interleaved_turn);
        let saving = self.saving.into_iter().flatten();
        Unfinished {
            waiting: waiting.map(|interleaved_turn| interleaved_turn.turn).collect(),
            unsaved: saving.chain(self.unsaved).collect(),
            joining: self.joining,
        }
    }
}

/// The turns left over when interleaving ends before they finish.
pub(crate) struct Unfinished<A> {
    /// Suspended turns.
    pub(crate) waiting: Vec<AnyTurn<A>>,
    /// Finished turns whose effect may not be saved.
    pub(crate) unsaved: Vec<AnyTurn<A>>,
    /// Calls that have not begun.
    pub(crate) joining: VecDeque<AnyTurn<A>>,
}

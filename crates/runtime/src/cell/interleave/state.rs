//! Interleaved turns of an actor: each borrows it as `&self`, and while one is suspended others run.

use std::collections::{BTreeMap, VecDeque};
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
    /// The turns that have begun and not finished, by numbers of their own.
    turns: BTreeMap<u64, Begun<A>>,
    next_number: u64,
    /// Turns that were woken, oldest first.
    woken: VecDeque<u64>,
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
    /// Wakes this turn alone. A turn that was only polled by its caller has none, and the actor's own waker wakes it.
    pub(crate) waker: Option<Waker>,
}

/// A turn that has begun.
struct Begun<A> {
    /// `None` while the turn is polled.
    suspended: Option<InterleavedTurn<A>>,
    chain: Option<ChainId>,
    /// Whether the turn is in the list of woken ones.
    is_woken: bool,
}

impl<A> Interleaved<A> {
    pub(crate) fn new(shared: SharedInstance, polled: bool) -> Self {
        Self {
            shared,
            polled,
            turns: BTreeMap::new(),
            next_number: 0,
            woken: VecDeque::new(),
            joining: VecDeque::new(),
            unsaved: Vec::new(),
            saving: None,
            lost: None,
        }
    }

    /// How many turns have begun and not finished.
    pub(crate) fn begun(&self) -> usize {
        self.turns.len()
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
        self.turns.values().any(|begun| begun.chain == Some(chain))
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

    /// Begins a turn; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        let begun = Begun {
            suspended: None,
            chain: None,
            is_woken: false,
        };
        self.next_number += 1;
        self.turns.insert(self.next_number, begun);
        self.next_number
    }

    /// Stores a suspended turn. Returns whether its chain was not known before.
    pub(crate) fn put(&mut self, number: u64, turn: InterleavedTurn<A>) -> bool {
        let begun = self.turns.get_mut(&number).expect("a turn that is polled has begun");
        let chain = turn.scope.chain();
        begun.suspended = Some(turn);
        std::mem::replace(&mut begun.chain, chain) != chain
    }

    /// Removes a finished turn.
    pub(crate) fn end(&mut self, number: u64) {
        self.turns.remove(&number);
    }

    /// Wakes a turn, unless it has finished.
    pub(crate) fn wake(&mut self, number: u64) {
        if let Some(begun) = self.turns.get_mut(&number)
            && !std::mem::replace(&mut begun.is_woken, true)
        {
            self.woken.push_back(number);
        }
    }

    /// Wakes the turns that have no waker of their own.
    pub(crate) fn wake_turns_without_waker(&mut self) {
        let is_without = |begun: &Begun<A>| matches!(&begun.suspended, Some(turn) if turn.waker.is_none());
        let without = self.turns.iter().filter(|(_, begun)| is_without(begun));
        let numbers: Vec<u64> = without.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.wake(number));
    }

    /// Takes out a turn that was woken.
    pub(crate) fn next_woken(&mut self) -> Option<(u64, InterleavedTurn<A>)> {
        while let Some(number) = self.woken.pop_front() {
            if let Some(begun) = self.turns.get_mut(&number) {
                begun.is_woken = false;
                if let Some(turn) = begun.suspended.take() {
                    return Some((number, turn));
                }
            }
        }
        None
    }

    /// Splits it into the turns that are left.
    pub(crate) fn into_unfinished(self) -> Unfinished<A> {
        let waiting = self.turns.into_values().filter_map(|begun| begun.suspended);
        let saving = self.saving.into_iter().flatten();
        Unfinished {
            waiting: waiting.map(|suspended| suspended.turn).collect(),
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

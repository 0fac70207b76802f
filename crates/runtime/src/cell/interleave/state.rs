//! The turns that share an actor: each borrows it as `&self`, and while one waits for something others run.

use std::collections::VecDeque;
use std::task::Waker;

use elastin_actor::{Scope, SharedInstance};
use elastin_types::{CallError, ChainId};

use crate::cell::mailbox::AnyTurn;

/// How many turns share an actor at most; the rest waits in the mailbox. As many as a mailbox holds: an actor with more under
/// way at once should be several actors.
pub(crate) const INTERLEAVED_MAX: usize = 1024;

/// The turns that share an actor, for as long as there are any.
///
/// INVARIANT: whoever polls one of them has set `polled`, and nobody else polls another meanwhile. So turns of an actor
/// interleave where they wait, but never run at the same time.
pub(crate) struct Interleaved<A> {
    pub(crate) shared: SharedInstance,
    pub(crate) polled: bool,
    places: Vec<Place<A>>,
    /// The places that nobody has.
    free: Vec<usize>,
    /// The places whose turns were woken, oldest first.
    woken: VecDeque<usize>,
    /// Calls that turns in here wait for themselves: they begin before anything in the mailbox.
    joining: VecDeque<AnyTurn<A>>,
    /// Turns that are over and may have seen what is not saved yet.
    pub(crate) unsaved: Vec<AnyTurn<A>>,
    /// The number of the save that is under way, and the turns whose replies wait for it.
    pub(crate) saving: Option<(u64, Vec<AnyTurn<A>>)>,
    /// Nobody may rely on the actor any longer: what the turns that are not over get.
    pub(crate) lost: Option<CallError>,
}

/// A turn that waits for something.
pub(crate) struct InterleavedTurn<A> {
    pub(crate) turn: AnyTurn<A>,
    pub(crate) scope: Box<Scope>,
    /// Wakes this turn alone. Without one it is woken by the actor's own waker, which is enough for a turn that has nobody
    /// beside it.
    pub(crate) waker: Option<Waker>,
}

struct Place<A> {
    /// `None` while the turn is polled, and when nobody has the place.
    interleaved_turn: Option<InterleavedTurn<A>>,
    chain: Option<ChainId>,
    /// Whether it is in the list of those that were woken.
    is_woken: bool,
    /// The waker of this place while its turn does not have it.
    waker: Option<Waker>,
}

impl<A> Interleaved<A> {
    pub(crate) fn new(shared: SharedInstance, polled: bool) -> Self {
        Self {
            shared,
            polled,
            places: Vec::new(),
            free: Vec::new(),
            woken: VecDeque::new(),
            joining: VecDeque::new(),
            unsaved: Vec::new(),
            saving: None,
            lost: None,
        }
    }

    /// How many turns have begun and are not over.
    pub(crate) fn begun(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is room for another turn.
    pub(crate) fn has_room(&self) -> bool {
        self.begun() + self.joining.len() < INTERLEAVED_MAX
    }

    /// Whether nothing is left to be done before the actor is whole again.
    pub(crate) fn is_over(&self) -> bool {
        self.begun() == 0 && self.joining.is_empty() && self.unsaved.is_empty() && self.saving.is_none()
    }

    /// Whether a turn that has begun belongs to this chain of calls.
    pub(crate) fn belongs(&self, chain: ChainId) -> bool {
        self.places.iter().any(|place| place.chain == Some(chain))
    }

    /// A call that a turn in here waits for begins as soon as it can.
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

    /// Finds a place for a turn.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                interleaved_turn: None,
                chain: None,
                is_woken: false,
                waker: None,
            });
            self.places.len() - 1
        })
    }

    /// The waker of a place, for a turn that is about to be polled; `None` if the actor's own waker is enough.
    pub(crate) fn waker(&mut self, place: usize, make: impl FnOnce() -> Waker) -> Option<Waker> {
        let known = self.places[place].waker.take();
        match known {
            None if self.begun() > 1 => Some(make()),
            known => known,
        }
    }

    /// Takes in a turn that waits. Says whether its chain was not known before.
    pub(crate) fn put(&mut self, place: usize, interleaved_turn: InterleavedTurn<A>) -> bool {
        let chain = interleaved_turn.scope.chain();
        let place = &mut self.places[place];
        place.interleaved_turn = Some(interleaved_turn);
        std::mem::replace(&mut place.chain, chain) != chain
    }

    /// The turn that had a place is over.
    pub(crate) fn release(&mut self, place: usize, waker: Option<Waker>) {
        self.free.push(place);
        let place = &mut self.places[place];
        place.chain = None;
        place.waker = waker.or(place.waker.take());
    }

    /// The turn at a place was woken. A waker may be older than the turn: that is polled once for nothing.
    pub(crate) fn wake(&mut self, place: usize) {
        if let Some(known) = self.places.get_mut(place)
            && !std::mem::replace(&mut known.is_woken, true)
        {
            self.woken.push_back(place);
        }
    }

    /// The turns without wakers of their own were woken.
    pub(crate) fn wake_for_injected(&mut self) {
        for place in 0..self.places.len() {
            if matches!(&self.places[place].interleaved_turn, Some(interleaved_turn) if interleaved_turn.waker.is_none())
            {
                self.wake(place);
            }
        }
    }

    /// Takes out a turn that was woken.
    pub(crate) fn next_woken(&mut self) -> Option<(usize, InterleavedTurn<A>)> {
        while let Some(woken) = self.woken.pop_front() {
            let place = &mut self.places[woken];
            place.is_woken = false;
            if let Some(interleaved_turn) = place.interleaved_turn.take() {
                return Some((woken, interleaved_turn));
            }
        }
        None
    }

    /// Takes it all apart.
    pub(crate) fn into_remains(self) -> Remains<A> {
        let waiting = self.places.into_iter().filter_map(|place| place.interleaved_turn);
        let saving = self.saving.into_iter().flat_map(|(_, turns)| turns);
        Remains {
            waiting: waiting.map(|interleaved_turn| interleaved_turn.turn).collect(),
            unsaved: saving.chain(self.unsaved).collect(),
            joining: self.joining,
        }
    }
}

/// What is left when an actor is no longer shared before its turns are over.
pub(crate) struct Remains<A> {
    /// Turns that have begun and wait for something.
    pub(crate) waiting: Vec<AnyTurn<A>>,
    /// Turns that are over and whose effect may not be saved.
    pub(crate) unsaved: Vec<AnyTurn<A>>,
    /// Calls that have not begun.
    pub(crate) joining: VecDeque<AnyTurn<A>>,
}

//! The mailbox of an actor: queued turns, oldest first.

use std::collections::VecDeque;
use std::pin::Pin;

use elastin_actor::{Posted, Turn};

use crate::tuning::POOLED_TURNS_MAX;

/// A turn of any handler.
pub(crate) type AnyTurn<A> = Pin<Box<dyn Turn<A>>>;

/// The mailbox of an actor.
///
/// A worker takes its contents as one batch, runs some of it without the lock, and returns the rest. Two buffers
/// alternate, so that neither side allocates.
pub(crate) struct Mailbox<A> {
    /// Older than all of `back`.
    front: VecDeque<AnyTurn<A>>,
    back: VecDeque<AnyTurn<A>>,
    /// Finished turns whose allocations later messages reuse.
    turn_pool: Vec<AnyTurn<A>>,
    /// The empty buffer of the last batch, for the next one.
    buffer: Vec<AnyTurn<A>>,
}

/// Turns that a worker took out of a mailbox, and finished ones kept for reuse.
pub(crate) struct Batch<A> {
    turns: VecDeque<AnyTurn<A>>,
    over: Vec<AnyTurn<A>>,
}

impl<A> Mailbox<A> {
    pub(crate) fn new() -> Self {
        Self {
            front: VecDeque::new(),
            back: VecDeque::new(),
            turn_pool: Vec::new(),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.back.is_empty()
    }

    /// Enqueues a message.
    #[inline]
    pub(crate) fn push(&mut self, message: &mut dyn Posted<A>) {
        let spare = self.turn_pool.pop();
        let filled = spare.and_then(|mut spare| message.put_into(spare.as_mut()).then_some(spare));
        self.back.push_back(filled.unwrap_or_else(|| message.boxed()));
    }

    /// Enqueues a turn in front of all others.
    pub(crate) fn push_front(&mut self, turn: AnyTurn<A>) {
        self.front.push_front(turn);
    }

    /// Takes all turns. Those that do not run return with [`give_back`](Mailbox::give_back).
    pub(crate) fn take_batch(&mut self) -> Batch<A> {
        if self.front.is_empty() {
            std::mem::swap(&mut self.front, &mut self.back);
        }
        Batch {
            turns: std::mem::take(&mut self.front),
            over: std::mem::take(&mut self.buffer),
        }
    }

    /// Takes all turns in exchange for a finished batch.
    pub(crate) fn exchange(&mut self, batch: &mut Batch<A>) {
        let next = self.take_batch();
        self.give_back(std::mem::replace(batch, next));
    }

    /// Takes back the rest of a batch, which is older than all turns that arrived since.
    pub(crate) fn give_back(&mut self, batch: Batch<A>) {
        let Batch { mut turns, mut over } = batch;
        // The shorter one is almost always empty, and then nothing is copied.
        if self.turn_pool.len() < over.len() {
            std::mem::swap(&mut self.turn_pool, &mut over);
        }
        let room = POOLED_TURNS_MAX - self.turn_pool.len();
        self.turn_pool.extend(over.drain(..).take(room));
        self.buffer = over;
        // A hook of an activation that waits for this batch may have been put in front meanwhile.
        turns.extend(self.front.drain(..));
        self.front = turns;
    }

    /// The oldest turn.
    pub(crate) fn front(&self) -> Option<&AnyTurn<A>> {
        self.front.front().or_else(|| self.back.front())
    }

    /// Takes the oldest turn.
    pub(crate) fn pop_front(&mut self) -> Option<AnyTurn<A>> {
        self.front.pop_front().or_else(|| self.back.pop_front())
    }

    /// All turns, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AnyTurn<A>> {
        self.front.iter().chain(&self.back)
    }

    /// Keeps a finished turn for reuse.
    pub(crate) fn keep(&mut self, over: AnyTurn<A>) {
        if self.turn_pool.len() < POOLED_TURNS_MAX {
            self.turn_pool.push(over);
        }
    }

    /// Takes the turns that match a predicate, which also gets the earlier turns that stay.
    pub(crate) fn take_matching(&mut self, matches: impl Fn(&AnyTurn<A>, &[AnyTurn<A>]) -> bool) -> Vec<AnyTurn<A>> {
        if !self.iter().any(|turn| matches(turn, &[])) {
            return Vec::new();
        }
        let (mut taken, mut others) = (Vec::new(), Vec::with_capacity(self.len()));
        for turn in self.front.drain(..).chain(self.back.drain(..)) {
            let place = match matches(&turn, &others) {
                true => &mut taken,
                false => &mut others,
            };
            place.push(turn);
        }
        self.front = others.into();
        taken
    }
}

impl<A> IntoIterator for Mailbox<A> {
    type Item = AnyTurn<A>;
    type IntoIter = std::iter::Chain<
        std::collections::vec_deque::IntoIter<AnyTurn<A>>,
        std::collections::vec_deque::IntoIter<AnyTurn<A>>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.front.into_iter().chain(self.back)
    }
}

impl<A> Batch<A> {
    /// The next turn to run.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<AnyTurn<A>> {
        self.turns.pop_front()
    }

    /// Puts back a turn that did not run.
    pub(crate) fn put_back(&mut self, turn: AnyTurn<A>) {
        self.turns.push_front(turn);
    }

    /// Keeps a finished turn for reuse.
    #[inline]
    pub(crate) fn keep(&mut self, over: AnyTurn<A>) {
        if self.over.len() < POOLED_TURNS_MAX {
            self.over.push(over);
        }
    }

    /// The turns that have not run.
    pub(crate) fn into_waiting(self) -> VecDeque<AnyTurn<A>> {
        self.turns
    }
}

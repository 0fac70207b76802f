//! The mailbox of an actor: queued turns, oldest first.

use std::collections::VecDeque;
use std::pin::Pin;

use elastin_actor::Turn;

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
}

/// Turns that a worker took out of a mailbox.
pub(crate) type Batch<A> = VecDeque<AnyTurn<A>>;

impl<A> Mailbox<A> {
    pub(crate) fn new() -> Self {
        Self {
            front: VecDeque::new(),
            back: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enqueues a turn.
    #[inline]
    pub(crate) fn push(&mut self, turn: AnyTurn<A>) {
        self.back.push_back(turn);
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
        std::mem::take(&mut self.front)
    }

    /// Takes all turns in exchange for a finished batch.
    pub(crate) fn exchange(&mut self, batch: &mut Batch<A>) {
        let next = self.take_batch();
        self.give_back(std::mem::replace(batch, next));
    }

    /// Takes back the rest of a batch, which is older than all turns that arrived since.
    pub(crate) fn give_back(&mut self, mut batch: Batch<A>) {
        // A hook of an activation that waits for this batch may have been put in front meanwhile.
        batch.extend(self.front.drain(..));
        self.front = batch;
    }

    /// The oldest turn.
    pub(crate) fn front(&self) -> Option<&AnyTurn<A>> {
        self.iter().next()
    }

    /// Takes the oldest turn.
    pub(crate) fn pop_front(&mut self) -> Option<AnyTurn<A>> {
        self.front.pop_front().or_else(|| self.back.pop_front())
    }

    /// All turns, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AnyTurn<A>> {
        self.front.iter().chain(&self.back)
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

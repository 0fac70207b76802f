//! Where an actor's body lies while nobody uses it, and what is to be done before the next turn.

use crate::habits::Habits;
use crate::marks::Marks;
use crate::since::Since;
use crate::sync::{AtomicU8, BoxCell, Ordering};

/// Where an actor's body lies while nobody uses it, with bits that ask for attention. What else is small and lies beside the
/// mailbox's lock is here, too, so that all of it takes 16 bytes.
///
/// INVARIANT: the body is in the cell only while no bit is set, except for a moment in which whoever put it there looks at the
/// bits and takes it out again. Bits are set under the mailbox's lock, before the cell is looked into; both sides swap the
/// cell, so one of the two sees the other.
pub(crate) struct IdleCell<B> {
    body: BoxCell<B>,
    attention: AtomicU8,
    pub(crate) marks: Marks,
    /// Since when the activation is here.
    pub(crate) since: Since,
    /// What turns are like.
    pub(crate) turns: Habits,
}

impl<B> IdleCell<B> {
    /// Without a body.
    pub(crate) fn new(attention: u8) -> Self {
        Self {
            body: BoxCell::new(None),
            attention: AtomicU8::new(attention),
            marks: Marks::default(),
            since: Since::default(),
            turns: Habits::default(),
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<Box<B>> {
        self.body.take()
    }

    #[inline]
    pub(crate) fn put(&self, body: Box<B>) {
        let other = self.body.swap(Some(body));
        assert!(other.is_none(), "an actor has one body");
    }

    /// The bits that are set.
    #[inline]
    pub(crate) fn attention(&self) -> u8 {
        self.attention.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self, bits: u8) {
        self.attention.fetch_or(bits, Ordering::AcqRel);
    }

    pub(crate) fn lower(&self, bits: u8) {
        self.attention.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Sets all bits at once.
    pub(crate) fn set_attention(&self, bits: u8) {
        self.attention.store(bits, Ordering::Release);
    }
}

#[cfg(all(test, feature = "loom"))]
mod models {
    use std::collections::VecDeque;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::Mutex;

    const MAIL: u8 = 1;

    /// A seat reduced to its mail: messages are numbers, and the body notes those that it has run.
    struct Seat {
        idle: IdleCell<Vec<u32>>,
        mailbox: Mutex<Mailbox>,
    }

    #[derive(Default)]
    struct Mailbox {
        queue: VecDeque<u32>,
        waiting: Option<Box<Vec<u32>>>,
    }

    impl Seat {
        /// What a call does: runs at once if the actor is idle, else queues.
        fn call(&self, message: u32) {
            match self.idle.take() {
                Some(body) if self.idle.attention() != 0 => {
                    self.settle(body);
                    self.push(message);
                }
                Some(mut body) => {
                    body.push(message);
                    self.idle.put(body);
                    if self.idle.attention() != 0
                        && let Some(body) = self.idle.take()
                    {
                        self.settle(body);
                    }
                }
                None => self.push(message),
            }
        }

        /// What a tell does.
        fn push(&self, message: u32) {
            let mut mailbox = self.mailbox.lock();
            mailbox.queue.push_back(message);
            if self.idle.attention() & MAIL == 0 {
                self.idle.raise(MAIL);
                if let Some(body) = self.idle.take() {
                    mailbox.waiting = Some(body);
                }
            }
        }

        fn settle(&self, body: Box<Vec<u32>>) {
            let mut mailbox = self.mailbox.lock();
            if !mailbox.queue.is_empty() {
                mailbox.waiting = Some(body);
                return;
            }
            self.idle.set_attention(0);
            self.idle.put(body);
        }

        /// What a worker does.
        fn visit(&self) {
            let mut mailbox = self.mailbox.lock();
            let Some(mut body) = mailbox.waiting.take() else { return };
            body.extend(mailbox.queue.drain(..));
            drop(mailbox);
            self.settle(body);
        }
    }

    #[test]
    fn no_mail_is_left_lying_and_nothing_is_overtaken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let seat = Arc::new(Seat {
                idle: IdleCell::new(0),
                mailbox: Mutex::new(Mailbox::default()),
            });
            seat.idle.put(Box::default());
            let other = thread::spawn({
                let seat = seat.clone();
                move || seat.call(10)
            });
            let worker = thread::spawn({
                let seat = seat.clone();
                move || seat.visit()
            });
            // One sender: first a tell, then a call.
            seat.push(1);
            seat.call(2);
            other.join().expect("the other caller ends well");
            worker.join().expect("the worker ends well");
            // Whatever still waits has a body that waits for a worker with it.
            seat.visit();
            let body = seat.idle.take().expect("the actor is idle in the end");
            let mine: Vec<u32> = body.iter().copied().filter(|message| *message < 10).collect();
            assert_eq!((mine, body.len()), (vec![1, 2], 3));
            assert!(seat.mailbox.lock().queue.is_empty());
        });
    }
}

//! Where an actor's instance lies while nobody uses it, and what is to be done before the next turn.

use crate::cell::flags::Marks;
use crate::cell::turn_cost::TurnCost;
use crate::coarse_instant::CoarseInstant;
use crate::sync::{AtomicU8, BoxCell, Ordering};

/// Where an actor's instance lies while nobody uses it, with bits that ask for attention. What else is small and lies beside the
/// mailbox's lock is here, too, so that all of it takes 16 bytes.
///
/// INVARIANT: the instance is in the cell only while no bit is set, except for a moment in which whoever put it there looks at the
/// bits and takes it out again. Bits are set under the mailbox's lock, before the cell is looked into; both sides swap the
/// cell, so one of the two sees the other.
pub(crate) struct IdleSlot<B> {
    instance: BoxCell<B>,
    attention: AtomicU8,
    pub(crate) marks: Marks,
    /// CoarseInstant when the activation is here.
    pub(crate) since: CoarseInstant,
    /// What turns are like.
    pub(crate) turns: TurnCost,
}

impl<B> IdleSlot<B> {
    /// Without a instance.
    pub(crate) fn new(attention: u8) -> Self {
        Self {
            instance: BoxCell::new(None),
            attention: AtomicU8::new(attention),
            marks: Marks::default(),
            since: CoarseInstant::default(),
            turns: TurnCost::default(),
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<Box<B>> {
        self.instance.take()
    }

    #[inline]
    pub(crate) fn put(&self, instance: Box<B>) {
        let other = self.instance.swap(Some(instance));
        assert!(other.is_none(), "an actor has one instance");
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

    /// A cell reduced to its mail: messages are numbers, and the instance notes those that it has run.
    struct CellHandle {
        idle: IdleSlot<Vec<u32>>,
        mailbox: Mutex<CellGuard>,
    }

    #[derive(Default)]
    struct CellGuard {
        queue: VecDeque<u32>,
        waiting: Option<Box<Vec<u32>>>,
    }

    impl CellHandle {
        /// What a call does: runs at once if the actor is idle, else queues.
        fn call(&self, message: u32) {
            match self.idle.take() {
                Some(instance) if self.idle.attention() != 0 => {
                    self.settle(instance);
                    self.push(message);
                }
                Some(mut instance) => {
                    instance.push(message);
                    self.idle.put(instance);
                    if self.idle.attention() != 0
                        && let Some(instance) = self.idle.take()
                    {
                        self.settle(instance);
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
                if let Some(instance) = self.idle.take() {
                    mailbox.waiting = Some(instance);
                }
            }
        }

        fn settle(&self, instance: Box<Vec<u32>>) {
            let mut mailbox = self.mailbox.lock();
            if !mailbox.queue.is_empty() {
                mailbox.waiting = Some(instance);
                return;
            }
            self.idle.set_attention(0);
            self.idle.put(instance);
        }

        /// What a worker does.
        fn visit(&self) {
            let mut mailbox = self.mailbox.lock();
            let Some(mut instance) = mailbox.waiting.take() else {
                return;
            };
            instance.extend(mailbox.queue.drain(..));
            drop(mailbox);
            self.settle(instance);
        }
    }

    #[test]
    fn no_mail_is_left_lying_and_nothing_is_overtaken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let cell = Arc::new(CellHandle {
                idle: IdleSlot::new(0),
                mailbox: Mutex::new(CellGuard::default()),
            });
            cell.idle.put(Box::default());
            let other = thread::spawn({
                let cell = cell.clone();
                move || cell.call(10)
            });
            let worker = thread::spawn({
                let cell = cell.clone();
                move || cell.visit()
            });
            // One sender: first a tell, then a call.
            cell.push(1);
            cell.call(2);
            other.join().expect("the other caller ends well");
            worker.join().expect("the worker ends well");
            // Whatever still waits has a instance that waits for a worker with it.
            cell.visit();
            let instance = cell.idle.take().expect("the actor is idle in the end");
            let mine: Vec<u32> = instance.iter().copied().filter(|message| *message < 10).collect();
            assert_eq!((mine, instance.len()), (vec![1, 2], 3));
            assert!(cell.mailbox.lock().queue.is_empty());
        });
    }
}

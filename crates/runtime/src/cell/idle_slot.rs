//! The slot that holds an idle actor's instance, and the attention bits to check before its next turn.

use crate::cell::lifecycle::Flags;
use crate::cell::turn_cost::TurnCost;
use crate::coarse_instant::CoarseInstant;
use crate::sync::{AtomicU8, BoxCell, Ordering};

/// The slot that holds an idle actor's instance, with its attention bits. Other small fields guarded by the cell's lock
/// are here too, so that all of it takes 16 bytes.
///
/// INVARIANT: the slot holds the instance only while no attention bit is set, except until the thread that put it there
/// has rechecked the bits. Bits are set under the lock before the slot is read; both sides swap the slot, so one of
/// them sees the other.
pub(crate) struct IdleSlot<B> {
    instance: BoxCell<B>,
    attention: AtomicU8,
    pub(crate) flags: Flags,
    /// When the activation began.
    pub(crate) since: CoarseInstant,
    /// Estimated cost of the actor's turns.
    pub(crate) turn_cost: TurnCost,
}

impl<B> IdleSlot<B> {
    /// An empty slot.
    pub(crate) fn new(attention: u8) -> Self {
        Self {
            instance: BoxCell::new(None),
            attention: AtomicU8::new(attention),
            flags: Flags::default(),
            since: CoarseInstant::default(),
            turn_cost: TurnCost::default(),
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

    /// The attention bits that are set.
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

    /// Replaces all attention bits.
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
    use crate::cell::lifecycle::{FREEZE, MESSAGES};
    use crate::sync::Mutex;

    /// A cell reduced to its mailbox: messages are numbers, and the instance records those that it has run.
    struct ModelCell {
        idle: IdleSlot<Vec<u32>>,
        state: Mutex<ModelState>,
    }

    #[derive(Default)]
    struct ModelState {
        mailbox: VecDeque<u32>,
        waiting: Option<Box<Vec<u32>>>,
        frozen: Option<Box<Vec<u32>>>,
    }

    impl ModelCell {
        /// A call: runs inline if the actor is idle, else is enqueued.
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

        /// A one-way message: always enqueued.
        fn push(&self, message: u32) {
            let mut guard = self.state.lock();
            guard.mailbox.push_back(message);
            if self.idle.attention() & MESSAGES == 0 {
                self.idle.raise(MESSAGES);
                if let Some(instance) = self.idle.take() {
                    guard.waiting = Some(instance);
                }
            }
        }

        /// The first step of a move.
        fn freeze(&self) {
            let mut guard = self.state.lock();
            self.idle.raise(FREEZE);
            guard.frozen = self.idle.take().or_else(|| guard.waiting.take());
        }

        fn settle(&self, instance: Box<Vec<u32>>) {
            let mut guard = self.state.lock();
            if self.idle.attention() & FREEZE != 0 {
                guard.frozen = Some(instance);
                return;
            }
            if !guard.mailbox.is_empty() {
                guard.waiting = Some(instance);
                return;
            }
            self.idle.set_attention(0);
            self.idle.put(instance);
        }

        /// One run of a worker.
        fn run_worker(&self) {
            let mut guard = self.state.lock();
            let Some(mut instance) = guard.waiting.take() else {
                return;
            };
            instance.extend(guard.mailbox.drain(..));
            drop(guard);
            self.settle(instance);
        }
    }

    #[test]
    fn no_message_is_stranded_or_reordered() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let cell = Arc::new(ModelCell {
                idle: IdleSlot::new(0),
                state: Mutex::new(ModelState::default()),
            });
            cell.idle.put(Box::default());
            let other = thread::spawn({
                let cell = cell.clone();
                move || cell.call(10)
            });
            let worker = thread::spawn({
                let cell = cell.clone();
                move || cell.run_worker()
            });
            // One sender: first a one-way message, then a call.
            cell.push(1);
            cell.call(2);
            other.join().expect("the other caller does not panic");
            worker.join().expect("the worker does not panic");
            // A message that is still queued has an instance that waits for a worker.
            cell.run_worker();
            let instance = cell.idle.take().expect("the actor ends up idle");
            let mine: Vec<u32> = instance.iter().copied().filter(|message| *message < 10).collect();
            assert_eq!((mine, instance.len()), (vec![1, 2], 3));
            assert!(cell.state.lock().mailbox.is_empty());
        });
    }

    #[test]
    fn a_freeze_is_not_missed() {
        loom::model(|| {
            let cell = Arc::new(ModelCell {
                idle: IdleSlot::new(0),
                state: Mutex::new(ModelState::default()),
            });
            cell.idle.put(Box::default());
            let caller = thread::spawn({
                let cell = cell.clone();
                move || cell.call(1)
            });
            cell.freeze();
            caller.join().expect("the caller does not panic");
            assert!(cell.idle.take().is_none(), "no turn starts after the freeze");
            let guard = cell.state.lock();
            let ran = guard.frozen.as_ref().expect("the actor ends up frozen").len();
            assert_eq!(ran + guard.mailbox.len(), 1, "the message has run or is queued");
        });
    }
}

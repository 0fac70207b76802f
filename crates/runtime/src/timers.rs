//! Things that happen at a time: deadlines, freezes that take too long, actors' timers.
//!
//! One thread sleeps until the earliest is due. What is due is run on that thread, so it only wakes or enqueues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;

use elastin_actor::WakeId;
use elastin_types::Time;
use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;

/// What happens when the time has come.
pub(crate) enum Due {
    /// Somebody is woken.
    Wake(Waker),
    /// Something short is run.
    Run(Box<dyn FnOnce() + Send>),
}

/// All things that wait for their time.
pub(crate) struct Timers {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    // A map, because most deadlines are cancelled long before they are due.
    waiting: BTreeMap<WakeId, Due>,
    sequence: u64,
    stopped: bool,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Starts the thread.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let timers = self.clone();
        std::thread::Builder::new()
            .name("elastin-timers".into())
            .spawn(move || timers.run())
    }

    /// Does something at a time. After [`stop`](Timers::stop) it is dropped at once.
    pub(crate) fn at(&self, at: Time, due: Due) -> WakeId {
        let mut state = self.state.lock();
        state.sequence += 1;
        let id = WakeId {
            at,
            sequence: state.sequence,
        };
        if state.stopped {
            return id;
        }
        let earliest = state.waiting.first_key_value().is_none_or(|(first, _)| id < *first);
        state.waiting.insert(id, due);
        if earliest {
            self.changed.notify_one();
        }
        id
    }

    /// Forgets something that has not happened yet.
    pub(crate) fn cancel(&self, id: WakeId) {
        let due = self.state.lock().waiting.remove(&id);
        // Dropped outside the lock: a waker's drop may run any code.
        drop(due);
    }

    /// Ends the thread and forgets everything.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_one();
        drop(waiting);
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            let Some((first, _)) = state.waiting.first_key_value() else {
                self.changed.wait(&mut state);
                continue;
            };
            let left = first.at.since(self.clock.now());
            if !left.is_zero() {
                self.changed.wait_for(&mut state, left);
                continue;
            }
            let (_, due) = state.waiting.pop_first().expect("the first was just seen");
            parking_lot::MutexGuard::unlocked(&mut state, || match due {
                Due::Wake(waker) => waker.wake(),
                Due::Run(run) => run(),
            });
        }
    }
}

//! Things that happen at a time: deadlines, freezes that take too long, actors' timers.
//!
//! One thread sleeps until the earliest is due. What is due is run on that thread, so it only wakes or enqueues.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::JoinHandle;

use elastin_actor::WakeId;
use elastin_clock::{Clock, Sleeps};
use elastin_types::Time;
use parking_lot::{Condvar, Mutex};

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
    /// Until when the thread sleeps, so that it is woken only for what is due before that: of the deadlines that calls have,
    /// hardly one is.
    asleep_until: Option<Time>,
    sequence: u64,
    stopped: bool,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        let timers = Arc::new(Self {
            clock,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let weak: Weak<Self> = Arc::downgrade(&timers);
        timers.clock.register("the timers", weak);
        timers
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
        state.waiting.insert(id, due);
        if state.asleep_until.is_some_and(|until| at < until) {
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
                state.asleep_until = Some(Time(u64::MAX));
                self.clock.note_sleep();
                self.changed.wait(&mut state);
                state.asleep_until = None;
                continue;
            };
            let at = first.at;
            let left = at.since(self.clock.now());
            if !left.is_zero() {
                state.asleep_until = Some(at);
                self.clock.note_sleep();
                self.changed.wait_for(&mut state, left);
                state.asleep_until = None;
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

impl Sleeps for Timers {
    fn asleep_until(&self) -> Option<Time> {
        let state = self.state.lock();
        let first = state.waiting.first_key_value().map(|(first, _)| first.at);
        match (state.stopped, first) {
            (true, _) => Some(Time(u64::MAX)),
            // It was told to look again, and has not yet.
            (false, Some(first)) if state.asleep_until.is_some_and(|until| first < until) => None,
            (false, _) => state.asleep_until,
        }
    }

    fn wake(&self) {
        // With the lock, so that it is not between a look at the clock and its sleep.
        let _state = self.state.lock();
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(5);
    /// No machine is so slow.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    #[test]
    fn what_is_due_earlier_than_the_thread_sleeps_happens_in_time() {
        let clock = Clock::start();
        let timers = Timers::new(clock.clone());
        let thread = timers.start().expect("a thread starts");
        let (tell, told) = mpsc::channel();
        let tell_at = |at: Time, what: u32| {
            let tell = tell.clone();
            let run = move || tell.send(what).expect("the test listens");
            timers.at(at, Due::Run(Box::new(run)))
        };
        // Whether the thread sleeps without end, for long, or until something that was forgotten.
        let sleeps_for_long = || {
            tell_at(clock.now() + LONG, 9);
        };
        let forgets = || timers.cancel(tell_at(clock.now() + LONG / 2, 9));
        let before: [&dyn Fn(); 3] = [&|| {}, &sleeps_for_long, &forgets];
        for (round, prepare) in before.into_iter().enumerate() {
            prepare();
            tell_at(clock.now() + 2 * SHORT, 2);
            tell_at(clock.now() + SHORT, 1);
            // On a busy machine the later one may have been told before the earlier one was asked for.
            let mut both = [(); 2].map(|()| told.recv_timeout(WAIT_MAX));
            both.sort_unstable_by_key(|told| *told.as_ref().unwrap_or(&0));
            assert_eq!(both, [Ok(1), Ok(2)], "in round {round}");
        }
        timers.stop();
        thread.join().expect("the thread ends well");
    }
}

//! Timers: deadlines, freeze timeouts, actors' timers.
//!
//! One thread sleeps until the earliest is due and runs it, so a due action only wakes or enqueues.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::JoinHandle;

use elastin_actor::WakeId;
use elastin_clock::{Clock, Sleeps};
use elastin_types::Time;
use parking_lot::{Condvar, Mutex};

/// Action of a timer.
pub(crate) enum Due {
    /// Wake a task.
    Wake(Waker),
    /// Run a short function.
    Run(Box<dyn FnOnce() + Send>),
}

/// All pending timers.
pub(crate) struct Timers {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    // A map, because most deadlines are cancelled long before they are due.
    waiting: BTreeMap<WakeId, Due>,
    /// How long the thread sleeps, so that it is only woken for earlier timers: a new deadline is hardly ever one.
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

    /// Starts the timer thread.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let timers = self.clone();
        std::thread::Builder::new()
            .name("elastin-timers".into())
            .spawn(move || timers.run())
    }

    /// Schedules an action. After [`stop`](Timers::stop) it is dropped at once.
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

    /// Cancels a pending action.
    pub(crate) fn cancel(&self, id: WakeId) {
        let due = self.state.lock().waiting.remove(&id);
        // Dropped outside the lock: a waker's drop may run any code.
        drop(due);
    }

    /// Stops the thread and drops all pending actions.
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
            let (_, due) = state.waiting.pop_first().expect("the first timer was just checked");
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
            // The thread was notified and has not rechecked yet.
            (false, Some(first)) if state.asleep_until.is_some_and(|until| first < until) => None,
            (false, _) => state.asleep_until,
        }
    }

    fn wake(&self) {
        // Under the lock, so that the thread is not between its clock read and its sleep.
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
    /// Longer than the slowest machine takes.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    #[test]
    fn a_timer_earlier_than_the_current_sleep_fires_in_time() {
        let clock = Clock::start();
        let timers = Timers::new(clock.clone());
        let thread = timers.start().expect("a thread starts");
        let (sender, fired) = mpsc::channel();
        let fire_at = |at: Time, number: u32| {
            let sender = sender.clone();
            let run = move || sender.send(number).expect("the test receives");
            timers.at(at, Due::Run(Box::new(run)))
        };
        // The thread sleeps forever, for a long time, or until a cancelled timer.
        let sleep_long = || {
            fire_at(clock.now() + LONG, 9);
        };
        let cancel_one = || timers.cancel(fire_at(clock.now() + LONG / 2, 9));
        let before: [&dyn Fn(); 3] = [&|| {}, &sleep_long, &cancel_one];
        for (round, prepare) in before.into_iter().enumerate() {
            prepare();
            fire_at(clock.now() + 2 * SHORT, 2);
            fire_at(clock.now() + SHORT, 1);
            // On a busy machine the later timer may fire before the earlier one is set.
            let mut both = [(); 2].map(|()| fired.recv_timeout(WAIT_MAX));
            both.sort_unstable_by_key(|number| *number.as_ref().unwrap_or(&0));
            assert_eq!(both, [Ok(1), Ok(2)], "in round {round}");
        }
        timers.stop();
        thread.join().expect("the thread does not panic");
    }
}

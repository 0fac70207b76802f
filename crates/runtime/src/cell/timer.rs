//! Timers of an activation.

use std::time::Duration;

use elastin_actor::{Handlers, Timer, TimerId, WakeId};
use elastin_types::Time;

use super::ActorCell;
use crate::cell::state::ActorTimer;
use crate::timers::Due;
use crate::tuning::TIMERS_MAX;

impl<A: Handlers> ActorCell<A> {
    pub(super) fn add_timer(&self, timer: Timer) -> TimerId {
        let mut guard = self.lock();
        let cold = guard.cold();
        cold.next_timer += 1;
        let id = TimerId(cold.next_timer);
        let wake = self.wake_at(id, self.runtime.clock.now() + timer.after);
        cold.timers.insert(id, ActorTimer { timer, wake });
        let surplus = if cold.timers.len() > TIMERS_MAX {
            cold.timers.pop_first()
        } else {
            None
        };
        drop(guard);
        if let Some((_, timer)) = surplus {
            tracing::warn!(actor = ?self.actor(), "the actor has more than {TIMERS_MAX} timers: stopped the oldest");
            self.runtime.timers.cancel(timer.wake);
        }
        id
    }

    pub(super) fn remove_timer(&self, id: TimerId) {
        let timer = self.lock().cold_if_any().and_then(|cold| cold.timers.remove(&id));
        if let Some(timer) = timer {
            self.runtime.timers.cancel(timer.wake);
        }
    }

    fn wake_at(&self, id: TimerId, due: Time) -> WakeId {
        let me = self.me.clone();
        let fire = move || {
            if let Some(cell) = me.upgrade() {
                cell.fire(id, due);
            }
        };
        self.runtime.timers.at(due, Due::Run(Box::new(fire)))
    }

    fn fire(&self, id: TimerId, due: Time) {
        let Some(mut fired) = self.lock().cold_if_any().and_then(|cold| cold.timers.remove(&id)) else {
            return;
        };
        let epoch = self.lock().epoch();
        // Without the lock: the tick is a message to this mailbox.
        (fired.timer.tick)();
        if let Some(every) = fired.timer.every {
            let mut guard = self.lock();
            if guard.epoch().is_some() && guard.epoch() == epoch {
                fired.wake = self.wake_at(id, next_tick(due, every, self.runtime.clock.now()));
                guard.cold().timers.insert(id, fired);
            }
        }
    }
}

/// Next tick of a timer: a multiple of its period after `due`, however late it fired. Missed ticks are skipped.
fn next_tick(due: Time, every: Duration, now: Time) -> Time {
    // The shortest period is one nanosecond; the longest is the range of the clock.
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    let periods = now.0.saturating_sub(due.0) / every + 1;
    Time(due.0.saturating_add(every.saturating_mul(periods)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_stay_on_the_timers_schedule() {
        let next = |due, every, now| next_tick(Time(due), Duration::from_nanos(every), Time(now)).0;
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110, "late, but before the next tick");
        assert_eq!(next(100, 10, 110), 120, "a tick that is due now is skipped");
        assert_eq!(next(100, 10, 1_234), 1_240);
        assert_eq!(next(100, 0, 105), 106);
        assert_eq!(next(100, u64::MAX, 105), u64::MAX);
    }
}

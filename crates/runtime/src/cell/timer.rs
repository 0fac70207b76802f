//! Timers of an activation.

use std::time::Duration;

use elastin_actor::{Handlers, Timer, TimerId, WakeId};
use elastin_types::Time;

use super::ActorCell;
use crate::cell::state::ActorTimer;
use crate::timers::Due;

/// How many timers an activation may have at a time: beyond this it is a bug, and the oldest give way.
const TIMERS_MAX: usize = 1024;

impl<A: Handlers> ActorCell<A> {
    pub(super) fn add_timer(&self, timer: Timer) -> TimerId {
        let mut mailbox = self.lock();
        let rest = mailbox.rest();
        rest.next_timer += 1;
        let id = TimerId(rest.next_timer);
        let wake = self.wake_at(id, self.shared.clock.now() + timer.after);
        rest.timers.insert(id, ActorTimer { timer, wake });
        let surplus = if rest.timers.len() > TIMERS_MAX {
            rest.timers.pop_first()
        } else {
            None
        };
        drop(mailbox);
        if let Some((_, timer)) = surplus {
            tracing::warn!(actor = ?self.actor(), "an actor has more than {TIMERS_MAX} timers: the oldest was stopped");
            self.shared.timers.cancel(timer.wake);
        }
        id
    }

    pub(super) fn remove_timer(&self, id: TimerId) {
        let timer = self.lock().rest_if_any().and_then(|rest| rest.timers.remove(&id));
        if let Some(timer) = timer {
            self.shared.timers.cancel(timer.wake);
        }
    }

    fn wake_at(&self, id: TimerId, due: Time) -> WakeId {
        let me = self.me.clone();
        let fire = move || {
            if let Some(cell) = me.upgrade() {
                cell.fire(id, due);
            }
        };
        self.shared.timers.at(due, Due::Run(Box::new(fire)))
    }

    fn fire(&self, id: TimerId, due: Time) {
        let Some(mut fired) = self.lock().rest_if_any().and_then(|rest| rest.timers.remove(&id)) else {
            return;
        };
        let epoch = self.lock().epoch();
        // Without the lock: the tick is a message to this very mailbox.
        (fired.timer.tick)();
        if let Some(every) = fired.timer.every {
            let mut mailbox = self.lock();
            if mailbox.epoch().is_some() && mailbox.epoch() == epoch {
                fired.wake = self.wake_at(id, next_tick(due, every, self.shared.clock.now()));
                mailbox.rest().timers.insert(id, fired);
            }
        }
    }
}

/// When a timer ticks next that was due at a time: a period later, however late it was. Ticks for which it is too late by now are
/// left out.
fn next_tick(due: Time, every: Duration, now: Time) -> Time {
    // Nothing comes more often than each nanosecond, and no period is longer than a clock runs.
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    let periods = now.0.saturating_sub(due.0) / every + 1;
    Time(due.0.saturating_add(every.saturating_mul(periods)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_to_their_rhythm_however_late_they_are() {
        let next = |due, every, now| next_tick(Time(due), Duration::from_nanos(every), Time(now)).0;
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110, "late, but not too late for the next");
        assert_eq!(next(100, 10, 110), 120, "that one would be due at once");
        assert_eq!(next(100, 10, 1_234), 1_240);
        assert_eq!(next(100, 0, 105), 106);
        assert_eq!(next(100, u64::MAX, 105), u64::MAX);
    }
}

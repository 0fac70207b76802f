//! Timers of an activation.

use elastin_actor::{Handlers, Timer, TimerId, WakeId};

use super::ActorSeat;
use crate::mailbox::ActorTimer;
use crate::timers::Due;

/// How many timers an activation may have at a time: beyond this it is a bug, and the oldest give way.
const TIMERS_MAX: usize = 1024;

impl<A: Handlers> ActorSeat<A> {
    pub(super) fn add_timer(&self, timer: Timer) -> TimerId {
        let mut mailbox = self.lock();
        let rest = mailbox.rest();
        rest.next_timer += 1;
        let id = TimerId(rest.next_timer);
        let wake = self.wake_for(id, timer.after);
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

    fn wake_for(&self, id: TimerId, after: std::time::Duration) -> WakeId {
        let me = self.me.clone();
        let fire = move || {
            if let Some(seat) = me.upgrade() {
                seat.fire(id);
            }
        };
        self.shared
            .timers
            .at(self.shared.clock.now() + after, Due::Run(Box::new(fire)))
    }

    fn fire(&self, id: TimerId) {
        let Some(mut fired) = self.lock().rest_if_any().and_then(|rest| rest.timers.remove(&id)) else {
            return;
        };
        let epoch = self.lock().epoch();
        // Without the lock: the tick is a message to this very mailbox.
        (fired.timer.tick)();
        if let Some(every) = fired.timer.every {
            let mut mailbox = self.lock();
            if mailbox.epoch().is_some() && mailbox.epoch() == epoch {
                fired.wake = self.wake_for(id, every);
                mailbox.rest().timers.insert(id, fired);
            }
        }
    }
}

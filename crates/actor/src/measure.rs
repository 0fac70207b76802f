//! What is measured of a turn while it runs.

use std::time::Duration;

use elastin_types::Time;

use crate::span::TurnSpan;

/// How many calls of a measured turn are measured one by one before only some are.
const EXACT_CALLS: u32 = 64;

/// The same for a turn that stands for others, of which there are many.
const EXACT_CALLS_OF_MANY: u32 = 8;

/// How many calls of a measured turn one stands for after that, on average. The stride varies around it: with a fixed one,
/// callees that are called in a pattern would be seen always or never.
const CALL_STRIDE: u32 = 16;

/// The same for a turn that makes very many, where fewer measured ones tell as much.
const CALL_STRIDE_OF_MANY: u32 = 96;

/// How many calls of one turn are very many.
const MANY_CALLS: u32 = 1024;

/// How many polls of a measured turn are timed one by one before only some are.
const EXACT_POLLS: u32 = 64;

/// How many polls of a measured turn one stands for after that, on average: a turn that waits so often is known well by then,
/// and to look at the clock costs about as much as to wait.
const POLL_STRIDE: u32 = 16;

/// A turn that is being measured.
pub(crate) struct Measure {
    /// How many turns it stands for; 0 when it is only timed so that its time can be taken off its caller's.
    pub(crate) weight: u32,
    /// When the present poll began, if it is timed.
    resumed: Time,
    /// The time of polls that are over, without inline calls.
    pub(crate) busy: Duration,
    /// The time of inline calls in the present poll.
    inlined: Duration,
    /// How many polls there were.
    polls: u32,
    /// How many polls the present one stands for; 0 if it is not timed.
    timed: u32,
    /// How many more polls are not timed.
    untimed: u32,
    /// How many calls are measured one by one.
    exact_calls: u32,
    /// How many calls the measured ones stand for.
    calls: u32,
    /// How many calls the next measured one stands for, and how many of them come before it.
    stride: u32,
    to_come: u32,
    dice: u32,
    /// How many inline calls of its caller this turn stands for: its time is taken off the caller's that many times.
    pub(crate) stands_for: u32,
    /// The encoded size of the arguments.
    pub(crate) bytes: u64,
    /// When the turn began, and how long it has lasted by its last poll, waits included.
    began: Time,
    pub(crate) latency: Duration,
    /// The turn's span, if it belongs to a recorded trace.
    pub(crate) span: Option<TurnSpan>,
}

impl Measure {
    pub(crate) fn new(weight: u32, now: Time, bytes: u64) -> Self {
        Self {
            weight,
            resumed: now,
            busy: Duration::ZERO,
            inlined: Duration::ZERO,
            polls: 1,
            timed: 1,
            untimed: 0,
            exact_calls: if weight > 1 { EXACT_CALLS_OF_MANY } else { EXACT_CALLS },
            calls: 0,
            stride: 1,
            to_come: 0,
            dice: 0,
            stands_for: 0,
            bytes,
            began: now,
            latency: Duration::ZERO,
            span: None,
        }
    }

    /// A poll begins. Says whether it is to be timed, by [`Measure::resume`]; one with a span always is.
    #[inline]
    pub(crate) fn poll_is_due(&mut self) -> bool {
        if self.untimed > 0 {
            self.untimed -= 1;
            return false;
        }
        true
    }

    /// A poll begins that is due.
    pub(crate) fn resume(&mut self, now: Time) {
        self.resumed = now;
        self.inlined = Duration::ZERO;
        self.timed = match self.polls {
            EXACT_POLLS.. if self.span.is_none() => self.around(POLL_STRIDE),
            _ => 1,
        };
        self.untimed = self.timed - 1;
        self.polls = self.polls.saturating_add(self.timed);
        if let Some(span) = &self.span {
            span.enter();
        }
    }

    /// Whether the present poll is timed.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed > 0
    }

    /// A poll is over that is timed, or is the last; its time is taken off that of the turn that made the call inline.
    pub(crate) fn pause(&mut self, now: Time, caller: Option<&mut Measure>) {
        if let Some(span) = &self.span {
            span.exit();
        }
        self.latency = now.since(self.began);
        let elapsed = now.since(self.resumed);
        self.busy += elapsed.saturating_sub(self.inlined) * std::mem::take(&mut self.timed);
        if let Some(caller) = caller {
            caller.inlined += elapsed * self.stands_for;
        }
    }

    /// Leaves something out that was done within the present poll.
    pub(crate) fn leave_out(&mut self, elapsed: Duration) {
        self.inlined += elapsed;
    }

    /// A call is made. Says whether it is to be measured, by [`Measure::take_call`].
    #[inline]
    pub(crate) fn call_is_due(&mut self) -> bool {
        if self.to_come > 0 {
            self.to_come -= 1;
            return false;
        }
        true
    }

    /// How many calls the one that is due stands for.
    pub(crate) fn take_call(&mut self) -> u32 {
        let stands_for = self.stride;
        self.calls = self.calls.saturating_add(stands_for);
        self.stride = if self.calls < self.exact_calls {
            1
        } else if self.calls < MANY_CALLS {
            self.around(CALL_STRIDE)
        } else {
            self.around(CALL_STRIDE_OF_MANY)
        };
        self.to_come = self.stride - 1;
        stands_for
    }

    /// From half the stride to one and a half times it, all equally often (a linear congruential generator).
    fn around(&mut self, stride: u32) -> u32 {
        self.dice = self.dice.wrapping_mul(0x5851_f42d).wrapping_add(0x1405_7b7f);
        stride / 2 + (self.dice >> 16) % (stride + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_turn_that_waits_often_is_known_though_few_polls_are_timed() {
        const POLLS: u64 = 10_000;
        let mut measure = Measure::new(1, Time::ZERO, 0);
        let (mut now, mut busy, mut reads) = (Time::ZERO, Duration::ZERO, 0);
        for poll in 0..POLLS {
            if poll > 0 && measure.poll_is_due() {
                measure.resume(now);
                reads += 1;
            }
            // Every other poll takes three times as long.
            let taken = Duration::from_nanos(if poll % 2 == 0 { 1_000 } else { 3_000 });
            now = now + taken;
            busy += taken;
            if measure.is_timed() || poll == POLLS - 1 {
                measure.pause(now, None);
            }
            now = now + Duration::from_micros(50);
        }
        let share = measure.busy.as_secs_f64() / busy.as_secs_f64();
        assert!((0.93..1.07).contains(&share), "{share}");
        assert!(reads < POLLS / 8, "{reads}");
        assert_eq!(measure.latency, now.since(Time::ZERO) - Duration::from_micros(50));
    }

    #[test]
    fn calls_in_a_pattern_are_counted_fairly() {
        const CALLS: u32 = 100_000;
        let mut measure = Measure::new(1, Time::ZERO, 0);
        let mut counted = [0; 2];
        for call in 0..CALLS {
            if measure.call_is_due() {
                counted[(call % 2) as usize] += measure.take_call();
            }
        }
        for count in counted {
            let share = f64::from(count) / f64::from(CALLS);
            assert!((0.47..0.53).contains(&share), "{share}");
        }
        assert!(counted[0] + counted[1] <= CALLS);
        assert!(counted[0] + counted[1] > CALLS - 2 * CALL_STRIDE_OF_MANY);
    }
}

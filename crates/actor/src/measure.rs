//! Measurement of a running turn.

use std::time::Duration;

use elastin_types::Time;

use crate::span::TurnSpan;
use crate::tuning::{
    CALL_STRIDE, CALL_STRIDE_SPARSE, EXACT_CALLS, EXACT_CALLS_WEIGHTED, EXACT_POLLS, MANY_CALLS, POLL_STRIDE,
};

/// A turn that is being measured.
pub(crate) struct Measure {
    /// The sampling weight; 0 if the turn is only timed to subtract its time from its caller's.
    pub(crate) weight: u32,
    /// Start of the current poll, if it is timed.
    resumed: Time,
    /// Accumulated time of finished polls, excluding inline calls.
    pub(crate) busy: Duration,
    /// Time of inline calls within the current poll.
    inlined: Duration,
    /// Number of polls so far.
    polls: u32,
    /// Weight of the current poll; 0 if it is not timed.
    timed: u32,
    /// Polls left before the next timed one.
    untimed: u32,
    /// Calls that are recorded individually.
    exact_calls: u32,
    /// Total weight of the recorded calls.
    calls: u32,
    /// Weight of the next recorded call.
    stride: u32,
    /// Calls left before the next recorded one.
    to_skip: u32,
    /// State of the generator that jitters the strides.
    rng: u32,
    /// Weight of this call among its caller's inline calls: its time is subtracted that many times from the caller's.
    pub(crate) call_weight: u32,
    /// The encoded size of the arguments.
    pub(crate) bytes: u64,
    /// Start of the turn.
    began: Time,
    /// Time from the start to the end of the last poll, including waits.
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
            exact_calls: if weight > 1 { EXACT_CALLS_WEIGHTED } else { EXACT_CALLS },
            calls: 0,
            stride: 1,
            to_skip: 0,
            rng: 0,
            call_weight: 0,
            bytes,
            began: now,
            latency: Duration::ZERO,
            span: None,
        }
    }

    /// Begins a poll. Returns whether to time it, with [`Measure::resume`]; a turn with a span is always timed.
    #[inline]
    pub(crate) fn poll_is_due(&mut self) -> bool {
        if self.untimed > 0 {
            self.untimed -= 1;
            return false;
        }
        true
    }

    /// Begins a timed poll.
    pub(crate) fn resume(&mut self, now: Time) {
        self.resumed = now;
        self.inlined = Duration::ZERO;
        self.timed = match self.polls {
            EXACT_POLLS.. if self.span.is_none() => self.jitter(POLL_STRIDE),
            _ => 1,
        };
        self.untimed = self.timed - 1;
        self.polls = self.polls.saturating_add(self.timed);
        if let Some(span) = &self.span {
            span.enter();
        }
    }

    /// Whether the current poll is timed.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed > 0
    }

    /// Ends a poll that is timed or is the last. Its time is subtracted from the inline caller's.
    pub(crate) fn pause(&mut self, now: Time, caller: Option<&mut Measure>) {
        if let Some(span) = &self.span {
            span.exit();
        }
        self.latency = now.since(self.began);
        let elapsed = now.since(self.resumed);
        self.busy += elapsed.saturating_sub(self.inlined) * std::mem::take(&mut self.timed);
        if let Some(caller) = caller {
            caller.inlined += elapsed * self.call_weight;
        }
    }

    /// Excludes time spent within the current poll.
    pub(crate) fn exclude(&mut self, elapsed: Duration) {
        self.inlined += elapsed;
    }

    /// Counts a call. Returns whether to record it, with [`Measure::take_call`].
    #[inline]
    pub(crate) fn call_is_due(&mut self) -> bool {
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return false;
        }
        true
    }

    /// Returns the weight of the call to record, and picks the next stride.
    pub(crate) fn take_call(&mut self) -> u32 {
        let weight = self.stride;
        self.calls = self.calls.saturating_add(weight);
        self.stride = if self.calls < self.exact_calls {
            1
        } else if self.calls < MANY_CALLS {
            self.jitter(CALL_STRIDE)
        } else {
            self.jitter(CALL_STRIDE_SPARSE)
        };
        self.to_skip = self.stride - 1;
        weight
    }

    /// A uniform value from half the stride to one and a half times it (linear congruential generator).
    fn jitter(&mut self, stride: u32) -> u32 {
        self.rng = self.rng.wrapping_mul(0x5851_f42d).wrapping_add(0x1405_7b7f);
        stride / 2 + (self.rng >> 16) % (stride + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_polls_estimate_the_time_of_a_turn() {
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
    fn periodic_calls_are_sampled_fairly() {
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
        assert!(counted[0] + counted[1] > CALLS - 2 * CALL_STRIDE_SPARSE);
    }
}

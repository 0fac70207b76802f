//! Measurement of turns: their time, their calls and their spans.

use std::time::Duration;

use elastin_types::{ActorId, Method};

use super::Scope;
use super::stack::with_current;
use crate::call_context::HERE;
use crate::host::TurnMeasure;
use crate::measure::Measure;
use crate::span::TurnSpan;

/// Runs `work` without counting its time as the current turn's.
#[inline]
pub(crate) fn without_timing<T>(work: impl FnOnce() -> T) -> T {
    let is_timed = with_current(|scope| scope?.measure.as_deref().map(Measure::is_timed)) == Some(true);
    match is_timed {
        true => without_timing_slow(work),
        false => work(),
    }
}

#[cold]
fn without_timing_slow<T>(work: impl FnOnce() -> T) -> T {
    let now = || with_current(|scope| scope.map(|scope| scope.cell().now()));
    let began = now();
    let done = work();
    let elapsed = now().zip(began).map_or(Duration::ZERO, |(now, began)| now.since(began));
    with_current(|scope| {
        if let Some(measure) = scope.and_then(|scope| scope.measure.as_deref_mut()) {
            measure.exclude(elapsed);
        }
    });
    done
}

impl Scope {
    #[cold]
    pub(super) fn start_clock(&mut self) {
        let now = self.cell().now();
        if let Some(measure) = &mut self.measure {
            measure.resume(now);
        }
    }

    /// Records the time of a finished poll.
    #[cold]
    pub(super) fn stop_clock(&mut self) {
        let now = self.cell().now();
        with_current(|mut caller| {
            if let Some(measure) = &mut self.measure {
                let caller = caller.as_mut().and_then(|caller| caller.measure.as_deref_mut());
                measure.pause(now, caller);
            }
            self.record_caller(caller.as_deref());
        });
    }

    /// Reports the measurements to the cell. Returns the weight of the next measured turn.
    #[cold]
    pub(super) fn report(&mut self, method: Method) -> Option<u16> {
        let (mut measure, origin) = (self.measure.take()?, self.origin.take()?);
        if let Some(span) = measure.span.take() {
            span.end(&**self.cell(), method);
        }
        if measure.weight == 0 {
            return None;
        }
        Some(self.cell().record_turn(&TurnMeasure {
            weight: measure.weight,
            busy: measure.busy,
            latency: measure.latency,
            caller: origin.caller,
            from: match origin.from {
                HERE => self.cell().node(),
                from => from,
            },
            method,
            bytes: measure.bytes,
        }))
    }

    /// Counts a call. Returns whether to record it.
    #[inline]
    pub(super) fn call_is_due(&mut self) -> bool {
        self.measure.as_deref_mut().is_some_and(Measure::call_is_due)
    }

    /// Records a sampled call that does not run inline.
    #[cold]
    pub(super) fn record_call(&mut self, (callee, method): (&ActorId, Method), size: impl FnOnce() -> u64) {
        let Some(measure) = &mut self.measure else { return };
        let weight = measure.weight * measure.take_call();
        if weight > 0 {
            self.cell().record_call(callee, method, size(), weight);
        }
    }

    /// Starts measuring a turn from the mailbox.
    #[cold]
    pub(super) fn measure_message(&mut self, weight: u32, size: impl FnOnce() -> u64) {
        self.measure = Some(Box::new(Measure::new(weight, self.cell().now(), size())));
    }

    /// Starts measuring an inline turn, because it is sampled or because its `caller` records the call.
    #[cold]
    pub(super) fn measure_inline(
        &mut self,
        method: Method,
        measured: Option<u32>,
        caller: Option<&mut Scope>,
        size: impl FnOnce() -> u64,
    ) {
        let mut calling = None;
        if let Some(caller) = caller
            && let Some(measure) = &mut caller.measure
        {
            calling = Some((measure.take_call(), measure.weight, caller.cell()));
        }
        let bytes = size();
        let mut measure = Measure::new(measured.unwrap_or(0), self.cell().now(), bytes);
        if let Some((call_weight, weight, caller)) = calling {
            measure.call_weight = call_weight;
            if weight > 0 {
                caller.record_call(&self.cell().id(), method, bytes, weight * call_weight);
            }
        }
        self.measure = Some(Box::new(measure));
    }

    /// Gives a traced turn its own trace context, with a span if the trace is recorded. A turn with a span is timed
    /// even if it is not sampled.
    #[cold]
    pub(super) fn begin_span(&mut self) {
        let Some(parent) = self.call_context.trace() else {
            return;
        };
        let number = self.cell().host().next_call();
        let place = parent.child(number.sequence ^ number.origin.0.rotate_left(32));
        self.call_context.set_trace(place);
        if place.is_sampled() {
            let span = TurnSpan::begin(&**self.cell(), place, parent);
            span.enter();
            let now = self.cell().now();
            let measure = self.measure.get_or_insert_with(|| Box::new(Measure::new(0, now, 0)));
            measure.span = Some(span);
        }
    }
}

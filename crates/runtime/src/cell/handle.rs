//! The cell as the turns of its actor use it.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use elastin_actor::{CellHandle, Handlers, Host, ReminderDone, ReminderRequest, SaveDone, Timer, TimerId, TurnMeasure};
use elastin_types::{ActorId, Method, NodeId, Time};

use super::ActorCell;
use crate::cell::lifecycle::Event;

/// Stride returned without profiling: the largest the counter can hold.
const UNMEASURED: u16 = u16::MAX;

impl<A: Handlers> CellHandle for ActorCell<A> {
    fn id(&self) -> ActorId {
        self.actor()
    }

    fn is_of(&self, actor: &ActorId) -> bool {
        actor.kind == A::KIND && self.id.is_of(actor)
    }

    fn waker(self: Arc<Self>) -> Waker {
        Waker::from(self)
    }

    fn now(&self) -> Time {
        self.runtime.clock.now()
    }

    fn node(&self) -> NodeId {
        self.runtime.settings.node
    }

    fn host(&self) -> Arc<dyn Host> {
        self.runtime.clone()
    }

    fn describe(&self, function: Option<Method>) -> String {
        let schema = &self.runtime.schema;
        let Some(function) = function else {
            return schema.show(&self.actor());
        };
        let mut functions = schema.actor_of(A::KIND).into_iter().flat_map(|kind| &kind.functions);
        let known = functions.find(|known| known.method() == function);
        known.map_or_else(|| format!("#{:08x}", function.number()), |known| known.name.clone())
    }

    fn record_turn(&self, turn: &TurnMeasure) -> u16 {
        let settings = &self.runtime.settings;
        if !settings.profiling {
            return UNMEASURED;
        }
        let (inline_cheap, resume_cheap) = (
            turn.busy < settings.inline_turn_max,
            turn.busy < settings.resume_turn_max,
        );
        self.idle.turn_cost.record(inline_cheap, resume_cheap);
        self.profile
            .change(|profile| profile.tables(|| self.mark_active()).turn(turn))
    }

    fn record_call(&self, callee: &ActorId, method: Method, bytes: u64, weight: u32) {
        self.profile.change(|profile| {
            let tables = profile.tables(|| self.mark_active());
            tables.call(callee, method, bytes, weight);
        });
    }

    fn deactivate(&self) {
        let mut guard = self.lock();
        if guard.lifecycle().after(Event::RequestEnd).is_some() {
            guard.transition(Event::RequestEnd);
        }
    }

    fn save_state(&self, state: Bytes, done: SaveDone) {
        self.save_during_turn(state, done);
    }

    fn remind(&self, request: ReminderRequest, done: ReminderDone) {
        match request.check(A::NAME, A::takes_reminders()) {
            Ok(()) => self.runtime.remote.remind(&self.actor(), request, done),
            Err(error) => done(Err(error)),
        }
    }

    fn start_timer(&self, timer: Timer) -> TimerId {
        self.add_timer(timer)
    }

    fn stop_timer(&self, timer: TimerId) {
        self.remove_timer(timer);
    }
}

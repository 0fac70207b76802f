//! Per-period reports of an activation, for snapshots.

use std::time::Duration;

use elastin_actor::{Handlers, Instance, Invoke, encoded_state_size};
use elastin_types::{ActorId, ActorStats, Caller, NodeId, PerResource, References, Time};

use super::ActorCell;
use crate::cell::erased::ErasedCell;
use crate::cell::lifecycle::REPORT;
use crate::profile::table::{Profile, StateNote, Tables};

/// The measurements of an activation.
pub(crate) trait Reports {
    /// Measurements since the last report; `None` without an activation. The second part counts towards the server's
    /// totals.
    fn report(&self, listed: bool, period: Period) -> Option<(Option<ActorStats>, Load)>;

    /// Measurements of an activation that was idle in this period; `None` if it has reported already.
    fn report_idle(&self, period: Period) -> Option<ActorStats>;
}

/// The period of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// Sequence number of the snapshot.
    pub(crate) number: u32,
    pub(crate) seconds: f64,
}

/// An actor's contribution to its server's load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) turns: u64,
    /// How long its turns ran.
    pub(crate) busy: Duration,
    /// How many messages are queued.
    pub(crate) backlog: u64,
}

impl<A: Handlers> Reports for ActorCell<A> {
    fn report(&self, listed: bool, period: Period) -> Option<(Option<ActorStats>, Load)> {
        // A cell that was registered twice has nothing to report the second time.
        let tables = self.profile.change(Profile::end_period)?;
        let (since, backlog) = self.observe(listed)?;
        let load = Load {
            turns: tables.turns,
            busy: tables.busy,
            backlog,
        };
        let noted = listed
            .then(|| self.profile.change(|profile| profile.report_note(period.number)))
            .flatten();
        let stats = noted.map(|noted| self.stats(*tables, noted, since, period));
        Some((stats, load))
    }

    fn report_idle(&self, period: Period) -> Option<ActorStats> {
        let (since, _) = self.observe(true)?;
        let noted = self.profile.change(|profile| profile.report_note(period.number))?;
        Some(self.stats(Tables::default(), noted, since, period))
    }
}

impl<A: Handlers> ActorCell<A> {
    /// Registers the cell for the report at the end of this period.
    pub(super) fn mark_active(&self) {
        let cell: std::sync::Weak<dyn ErasedCell> = self.me.clone();
        self.runtime.active.add(cell);
    }

    /// Records the state's size and references between two turns, if a turn has run since the last time.
    pub(super) fn note_state(&self, instance: &mut Instance<A>) {
        if std::mem::take(&mut instance.used_since_report) {
            self.note(&instance.state);
        }
    }

    /// Records the state's size and references.
    pub(super) fn note(&self, state: &A) {
        let mut references: Vec<References> = Vec::new();
        state.visit_references(&mut |property, actor| match references.last_mut() {
            Some(last) if last.property == property => last.actors.push(actor.clone()),
            _ => references.push(References {
                property,
                actors: vec![actor.clone()],
            }),
        });
        let state_bytes = encoded_state_size(state);
        self.profile.change(|profile| profile.note(state_bytes, references));
    }

    /// Returns when the activation began and how many messages are queued. On request it also records the state; an
    /// actor in a turn does so when that turn ends.
    fn observe(&self, with_state: bool) -> Option<(Time, u64)> {
        let mut guard = self.lock();
        guard.epoch()?;
        let (since, backlog) = (guard.since(), guard.queued() as u64);
        guard.shrink();
        match self.idle.take() {
            Some(mut instance) => {
                drop(guard);
                instance.forget_waker();
                if with_state {
                    self.note_state(&mut instance);
                }
                self.finish(instance);
            }
            None if !with_state => {}
            None => match guard.unpolled() {
                Some(interleaved) => self.note(&interleaved.shared.instance::<A>().state),
                None => match guard.cold_if_any().and_then(|cold| cold.waiting.as_mut()) {
                    Some(instance) => self.note_state(instance),
                    None => self.idle.raise(REPORT),
                },
            },
        }
        Some((since, backlog))
    }

    fn stats(&self, mut tables: Tables, noted: StateNote, since: Time, period: Period) -> ActorStats {
        let node = self.runtime.settings.node;
        let busy_ms = tables.busy.as_secs_f64() * 1000.0;
        let functions = tables.take_functions();
        let (calls_in, calls_out) = tables.edges(|callee| self.node_of(callee));
        let inbound = calls_in
            .iter()
            .filter(|call| call.node != Some(node) || is_client(&call.caller));
        let outbound = calls_out.iter().filter(|call| call.node != Some(node));
        let bytes = inbound.map(|call| call.bytes).sum::<u64>() + outbound.map(|call| call.bytes).sum::<u64>();
        ActorStats {
            actor: self.actor(),
            node,
            since,
            used: PerResource {
                cpu: busy_ms / period.seconds,
                mem: noted.state_bytes as f64,
                net: bytes as f64 / period.seconds,
            },
            calls_in,
            calls_out,
            references: noted.references,
            functions,
        }
    }

    fn node_of(&self, actor: &ActorId) -> Option<NodeId> {
        let here = self
            .runtime
            .registry
            .get(actor)
            .is_some_and(|cell| cell.epoch().is_some());
        if here {
            return Some(self.runtime.settings.node);
        }
        self.runtime.remote.last_known_node(actor)
    }
}

/// A client never counts as local, even in the same process.
fn is_client(caller: &Caller) -> bool {
    matches!(caller, Caller::Client(_))
}

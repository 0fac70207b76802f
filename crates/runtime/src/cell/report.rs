//! What an activation tells about itself once per period.

use elastin_actor::{Handlers, Instance, Invoke, UsedSince, encoded_state_size};
use elastin_types::{ActorId, ActorStats, Caller, NodeId, PerResource, References, Time};

use super::{ActorCell, REPORT};
use crate::cell::erased::{ErasedCell, Load, Period};
use crate::profile::table::{Noted, Profile, Tables};

impl<A: Handlers> ActorCell<A> {
    /// The cell has something to report at the end of this period.
    pub(super) fn is_busy(&self) {
        let cell: std::sync::Weak<dyn ErasedCell> = self.me.clone();
        self.shared.busy.add(cell);
    }

    /// Notes the state's size and references, as they are between two turns, if a turn has run since the last time.
    pub(super) fn note_state(&self, instance: &mut Instance<A>) {
        if instance.used.take(UsedSince::LOOK) {
            self.note(&instance.state);
        }
    }

    /// Notes the state's size and references.
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

    /// What an activation did in the period that ends.
    pub(super) fn make_report(&self, listed: bool, period: Period) -> Option<(Option<ActorStats>, Load)> {
        // An actor that came into the list twice has nothing more to say the second time.
        let tables = self.profile.change(Profile::end_period)?;
        let (since, backlog) = self.look(listed)?;
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

    /// What is known of an activation, unless it has reported in this period.
    pub(super) fn make_idle_report(&self, period: Period) -> Option<ActorStats> {
        let (since, _) = self.look(true)?;
        let noted = self.profile.change(|profile| profile.report_note(period.number))?;
        Some(self.stats(Tables::default(), noted, since, period))
    }

    /// Looks at the activation; gives since when it is here, and how many messages wait. Also at its state, if that is
    /// wanted: one that is not at rest right now notes its state when its present turn is over.
    fn look(&self, at_state: bool) -> Option<(Time, u64)> {
        let mut mailbox = self.lock();
        mailbox.epoch()?;
        let (since, backlog) = (mailbox.since(), mailbox.queued() as u64);
        mailbox.shrink();
        match self.idle.take() {
            Some(mut instance) => {
                drop(mailbox);
                instance.forget_waker();
                if at_state {
                    self.note_state(&mut instance);
                }
                self.finish(instance);
            }
            None if !at_state => {}
            None => {
                let rest = mailbox.rest_if_any();
                let sharing = rest.and_then(|rest| rest.sharing.as_ref().filter(|sharing| !sharing.polled));
                match sharing {
                    Some(sharing) => self.note(&sharing.shared.instance::<A>().state),
                    None => match mailbox.rest_if_any().and_then(|rest| rest.waiting.as_mut()) {
                        Some(instance) => self.note_state(instance),
                        None => self.raise(REPORT),
                    },
                }
            }
        }
        Some((since, backlog))
    }

    fn stats(&self, mut tables: Tables, noted: Noted, since: Time, period: Period) -> ActorStats {
        let node = self.shared.settings.node;
        let busy_ms = tables.busy.as_secs_f64() * 1000.0;
        let functions = tables.take_functions();
        let (calls_in, calls_out) = tables.edges(|callee| self.node_of(callee));
        let came = calls_in
            .iter()
            .filter(|call| call.node != Some(node) || is_client(&call.caller));
        let left = calls_out.iter().filter(|call| call.node != Some(node));
        let bytes = came.map(|call| call.bytes).sum::<u64>() + left.map(|call| call.bytes).sum::<u64>();
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
            .shared
            .registry
            .get(actor)
            .is_some_and(|cell| cell.epoch().is_some());
        if here {
            return Some(self.shared.settings.node);
        }
        self.shared.outside.last_known_node(actor)
    }
}

/// A client is never on the node itself, even where it is in the same process.
fn is_client(caller: &Caller) -> bool {
    matches!(caller, Caller::Client(_))
}

//! What an activation tells about itself once per period.

use std::time::Duration;

use elastin_actor::{Body, Handlers, encoded_state_size};
use elastin_types::{ActorId, ActorStats, Caller, NodeId, PerResource, References};

use super::{ActorSeat, REPORT};
use crate::any_seat::Load;
use crate::profile_table::{Noted, Profile};

impl<A: Handlers> ActorSeat<A> {
    /// Notes the state's size and references, as they are between two turns.
    pub(super) fn note_state(&self, body: &Body<A>) {
        let mut references: Vec<References> = Vec::new();
        body.state
            .visit_references(&mut |property, actor| match references.last_mut() {
                Some(last) if last.property == property => last.actors.push(actor.clone()),
                _ => references.push(References {
                    property,
                    actors: vec![actor.clone()],
                }),
            });
        let noted = Noted {
            state_bytes: encoded_state_size(&body.state),
            references,
        };
        self.profile.change(|profile| profile.noted = Some(noted));
    }

    pub(super) fn make_report(&self, listed: bool, period_s: f64) -> Option<(Option<ActorStats>, Load)> {
        let mut mailbox = self.mailbox.lock();
        mailbox.epoch?;
        let backlog = mailbox.queued() as u64;
        let since = mailbox.since;
        mailbox.shrink();
        if listed {
            // An actor that is not at rest right now notes its state when its present turn is over.
            match self.idle.take() {
                Some(body) => {
                    drop(mailbox);
                    self.note_state(&body);
                    elastin_actor::Target::finish(self, body);
                }
                None => {
                    match &mailbox.waiting {
                        Some(body) => self.note_state(body),
                        None => self.raise(REPORT),
                    }
                    drop(mailbox);
                }
            }
        } else {
            drop(mailbox);
        }
        let profile = self.next_period();
        let load = Load {
            turns: profile.as_ref().map_or(0, |profile| profile.turns),
            busy: profile.as_ref().map_or(Duration::ZERO, |profile| profile.busy),
            backlog,
        };
        let stats = listed.then(|| self.stats(profile, since, period_s));
        Some((stats, load))
    }

    /// Takes what was measured and starts a new period: with nothing, if the actor was idle in this one.
    fn next_period(&self) -> Option<Profile> {
        let taken = *self.profile.take()?;
        if taken.turns > 0
            && let Some(noted) = &taken.noted
        {
            self.profile.change(|next| next.noted = Some(noted.clone()));
        }
        Some(taken)
    }

    fn stats(&self, profile: Option<Profile>, since: elastin_types::Time, period_s: f64) -> ActorStats {
        let node = self.shared.settings.node;
        let mut profile = profile.unwrap_or_default();
        let noted = profile.noted.take().unwrap_or_default();
        let busy_ms = profile.busy.as_secs_f64() * 1000.0;
        let (calls_in, calls_out) = profile.edges(|callee| self.node_of(callee));
        let came = calls_in
            .iter()
            .filter(|call| call.node != Some(node) || is_client(&call.caller));
        let left = calls_out.iter().filter(|call| call.node != Some(node));
        let bytes = came.map(|call| call.bytes).sum::<u64>() + left.map(|call| call.bytes).sum::<u64>();
        ActorStats {
            actor: self.id.clone(),
            node,
            since,
            used: PerResource {
                cpu: busy_ms / period_s,
                mem: noted.state_bytes as f64,
                net: bytes as f64 / period_s,
            },
            calls_in,
            calls_out,
            references: noted.references,
        }
    }

    fn node_of(&self, actor: &ActorId) -> Option<NodeId> {
        let here = self
            .shared
            .registry
            .get(actor)
            .is_some_and(|seat| seat.epoch().is_some());
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

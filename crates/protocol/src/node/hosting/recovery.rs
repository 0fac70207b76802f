//! Reports to new owners of directory slots about the activations here.

use std::collections::BTreeSet;

use elastin_types::{ActorId, NodeId, SlotEpoch};

use super::{FIRST_ATTEMPT_AFTER_MOVE, Hosted, Hosting, InStep, OutStep, Phase};
use crate::node::directory::ENTRIES_PER_FRAME;
use crate::node::effect::Effect;
use crate::node::env::Env;
use crate::{Body, DirectoryBody, Entry, Slot};

impl Hosting {
    /// Reports the activations hosted here to the new owner of slots. Earlier owners are ignored from then on. Returns
    /// these slots.
    pub(in crate::node) fn on_recover(
        &mut self,
        env: &mut Env,
        from: NodeId,
        slots: Vec<(Slot, SlotEpoch)>,
    ) -> BTreeSet<Slot> {
        for (slot, epoch) in &slots {
            self.raise_floor(*slot, *epoch);
        }
        let wanted: BTreeSet<Slot> = slots.iter().map(|(slot, _)| *slot).collect();
        let mut entries: Vec<Entry> = self
            .hosted
            .iter()
            .filter(|(actor, _)| wanted.contains(&Slot::of(actor)))
            .filter_map(|(actor, hosted)| reported_entry(env.me, &actor, hosted))
            .collect();
        entries.sort_unstable_by(|one, other| one.actor.cmp(&other.actor));
        let mut parts: Vec<Vec<Entry>> = entries.chunks(ENTRIES_PER_FRAME).map(<[Entry]>::to_vec).collect();
        // The last part answers the request, even without entries.
        let last = parts.pop().unwrap_or_default();
        let parts = parts.into_iter().map(|entries| (entries, Vec::new()));
        for (entries, done) in parts.chain([(last, slots)]) {
            env.send(from, Body::Directory(DirectoryBody::Recovered { entries, done }));
        }
        wanted
    }

    /// The unsettled actors whose slots have new owners.
    pub(in crate::node) fn unsettled(&self, changed: impl Fn(&ActorId) -> bool) -> Vec<ActorId> {
        self.unsettled.iter().filter(|actor| changed(actor)).cloned().collect()
    }

    /// Redirects an unsettled actor to the new owner of its slot: an unsent report goes there, and so do messages that
    /// waited for the old owner's answer.
    pub(in crate::node) fn follow_owner(&mut self, env: &mut Env, actor: &ActorId) -> Option<Effect> {
        match self.hosted[actor].phase() {
            Phase::Expected => Some(Effect::SendElsewhere(self.remove(actor), None)),
            Phase::Leaving => {
                self.leave(env, actor.clone());
                None
            }
            _ => None,
        }
    }
}

/// The directory entry for an actor whose location this node is the authority on.
fn reported_entry(me: NodeId, actor: &ActorId, hosted: &Hosted) -> Option<Entry> {
    let here = |epoch, attempts_void| Entry {
        actor: actor.clone(),
        node: me,
        epoch,
        attempts_void,
    };
    match hosted.phase() {
        Phase::Activating | Phase::Closed | Phase::Active => Some(here(hosted.epoch(), hosted.attempts())),
        Phase::MovingOut(out) => {
            let void = match out.step {
                OutStep::Aborting(_) => out.attempt + 1,
                _ => out.attempt,
            };
            Some(here(hosted.epoch(), void))
        }
        Phase::MovingIn(incoming) => match incoming.step {
            InStep::Committed(epoch) => Some(here(epoch, FIRST_ATTEMPT_AFTER_MOVE)),
            _ => None,
        },
        Phase::Releasing(releasing) => Some(Entry {
            actor: actor.clone(),
            node: releasing.to,
            epoch: releasing.to_epoch,
            attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
        }),
        Phase::Departed(departed) if departed.until.is_none() => Some(Entry {
            actor: actor.clone(),
            node: departed.to,
            epoch: departed.to_epoch,
            attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
        }),
        Phase::Departed(_) | Phase::Expected | Phase::Leaving => None,
    }
}

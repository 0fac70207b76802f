//! Activations on this node, from the directory's grant to their end.
//!
//! `grants` has the arrival of activations, `delivery` the messages for them, and `recovery` the reports to new owners of
//! directory slots. Moves change the phase of an activation through the methods of [`Hosting`].

mod delivery;
mod grants;
mod hosted;
mod recovery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elastin_types::{ActivationEpoch, ActorId, CallId, NodeId, SlotEpoch, Time};

use super::calls::Calls;
use super::dedup::DedupTable;
use super::effect::Effect;
use super::env::Env;
use super::is_actor;
use super::routing::{Path, Place, Routing};
use super::sizes::TableSizes;
use crate::bug::Bug;
use crate::collections::actor_map::ActorMap;
use crate::{Body, Command, DirectoryBody, Slot, StateSource};

pub(super) use delivery::report_landed;
pub(super) use hosted::{
    Departed, FIRST_ATTEMPT_AFTER_MOVE, Held, Hosted, InStep, MoveIn, MoveOut, OutStep, Phase, Releasing,
};

/// The actors that are, were or will be active on this node, and the messages held for them.
#[derive(Debug)]
pub(super) struct Hosting {
    /// Whether this node may host actors.
    hosts: bool,
    hosted: ActorMap<Hosted>,
    /// Hosted actors whose held messages may still have to be sent elsewhere.
    // INVARIANT: it contains exactly the actors whose phase is unsettled. Only this part changes phases.
    unsettled: BTreeSet<ActorId>,
    /// Messages that arrived through the directory, were delivered in the last event, and may still bounce.
    landing: Vec<(ActorId, CallId, ActivationEpoch)>,
    /// Deduplication records of the actors hosted here.
    // INVARIANT: the records of an activation are dropped when it ends or leaves.
    dedup: DedupTable,
    /// Highest owner epoch that has recovered each slot from this node. Messages from earlier owners are ignored.
    slot_floors: BTreeMap<Slot, SlotEpoch>,
}

impl Hosting {
    pub(super) fn new(hosts: bool) -> Self {
        Self {
            hosts,
            hosted: ActorMap::default(),
            unsettled: BTreeSet::new(),
            landing: Vec::new(),
            dedup: DedupTable::default(),
            slot_floors: BTreeMap::new(),
        }
    }

    /// Whether this node may host actors.
    pub(super) fn hosts(&self) -> bool {
        self.hosts
    }

    pub(super) fn get(&self, actor: &ActorId) -> Option<&Hosted> {
        self.hosted.get(actor)
    }

    /// Mutable access to an actor. Its phase is changed with [`Self::set_phase`].
    pub(super) fn get_mut(&mut self, actor: &ActorId) -> Option<&mut Hosted> {
        self.hosted.get_mut(actor)
    }

    /// The undecided move of an actor away from this node.
    pub(super) fn moving_out(&self, actor: &ActorId) -> Option<&MoveOut> {
        match self.hosted.get(actor)?.phase() {
            Phase::MovingOut(out) => Some(out),
            _ => None,
        }
    }

    pub(super) fn moving_out_mut(&mut self, actor: &ActorId) -> Option<&mut MoveOut> {
        self.hosted.get_mut(actor)?.moving_out()
    }

    /// The move of an actor to this node.
    pub(super) fn moving_in(&self, actor: &ActorId) -> Option<&MoveIn> {
        match self.hosted.get(actor)?.phase() {
            Phase::MovingIn(incoming) => Some(incoming),
            _ => None,
        }
    }

    /// An actor that is known to be hosted.
    fn expect_mut(&mut self, actor: &ActorId) -> &mut Hosted {
        self.hosted.get_mut(actor).expect("the actor is hosted")
    }

    /// The epoch of an actor that is known to be hosted.
    pub(super) fn epoch_of(&self, actor: &ActorId) -> ActivationEpoch {
        self.hosted[actor].epoch()
    }

    /// Deduplication records of the actors hosted here.
    pub(super) fn dedup(&mut self) -> &mut DedupTable {
        &mut self.dedup
    }

    /// The activations that accept messages, in no particular order.
    pub(super) fn active(&self) -> impl Iterator<Item = (ActorId, ActivationEpoch)> {
        let active = self.hosted.iter().filter(|(_, hosted)| hosted.phase().takes_mail());
        active.map(|(actor, hosted)| (actor, hosted.epoch()))
    }

    /// Whether nothing is left here except tombstones that the new hosts do not need.
    pub(super) fn is_clear(&self) -> bool {
        let is_gone = |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.until.is_some());
        self.hosted.values().all(is_gone)
    }

    /// Adds the sizes of this part's tables.
    pub(super) fn measure(&self, sizes: &mut TableSizes) {
        let held = || self.hosted.values().map(|hosted| hosted.held().len());
        sizes.hosted = self.hosted.len();
        sizes.held += held().sum::<usize>();
        sizes.held_most = sizes.held_most.max(held().max().unwrap_or(0));
        sizes.requests = self.dedup.len();
        sizes.requests_most = self.dedup.most();
    }

    /// Adds an actor that is not in the table, or only as a tombstone.
    pub(super) fn insert(&mut self, actor: &ActorId, epoch: ActivationEpoch, phase: Phase) {
        if phase.is_unsettled() {
            self.unsettled.insert(actor.clone());
        }
        self.hosted.insert(actor, Hosted::new(epoch, phase));
    }

    /// Changes an actor's phase and returns the previous one.
    pub(super) fn set_phase(&mut self, actor: &ActorId, phase: Phase) -> Phase {
        if phase.is_unsettled() {
            self.unsettled.insert(actor.clone());
        } else {
            self.unsettled.remove(actor);
        }
        self.expect_mut(actor).set_phase(phase)
    }

    /// Removes an actor and returns the messages held for it.
    pub(super) fn remove(&mut self, actor: &ActorId) -> VecDeque<Held> {
        self.unsettled.remove(actor);
        let removed = self.hosted.remove(actor);
        removed.map(|mut hosted| hosted.take_held()).unwrap_or_default()
    }

    /// Removes an actor that does not run here after all, with its deduplication records.
    pub(super) fn drop_actor(&mut self, actor: &ActorId) -> Effect {
        self.dedup.forget_actor(actor);
        Effect::SendElsewhere(self.remove(actor), None)
    }

    /// Has the runtime load an actor. The order of all held messages is final from here on.
    pub(super) fn activate(&mut self, env: &mut Env, actor: ActorId, source: StateSource) -> Effect {
        self.set_phase(&actor, Phase::Activating);
        let epoch = self.epoch_of(&actor);
        self.report_held_landed(env, &actor, epoch);
        env.command(Command::Activate {
            actor: actor.clone(),
            epoch,
            source,
        });
        Effect::LeavePath(actor, Place::Host(env.me, epoch))
    }

    /// Reports held messages as landed: each now has its final place in the actor's queue.
    fn report_held_landed(&mut self, env: &mut Env, actor: &ActorId, epoch: ActivationEpoch) {
        for held in self.expect_mut(actor).held_mut() {
            if std::mem::take(&mut held.passed) {
                report_landed(env, actor, held.message.header.call, epoch);
            }
        }
    }

    /// Settles the messages held for an actor whose whole queue has arrived: they follow that queue.
    pub(super) fn queue_arrived(&mut self, env: &mut Env, actor: &ActorId, epoch: ActivationEpoch) {
        self.unsettled.remove(actor);
        self.report_held_landed(env, actor, epoch);
    }

    /// The messages held for an activation whose result the runtime reports; `None` if the report is stale.
    pub(super) fn take_activating(&mut self, actor: &ActorId, epoch: ActivationEpoch) -> Option<VecDeque<Held>> {
        let hosted = self.hosted.get_mut(actor)?;
        let is_it = hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Activating);
        is_it.then(|| hosted.take_held())
    }

    /// Delivers the messages held for an activation that the runtime has loaded.
    pub(super) fn loaded(&mut self, env: &mut Env, calls: &mut Calls, actor: &ActorId, held: VecDeque<Held>) {
        self.set_phase(actor, Phase::Closed);
        let epoch = self.epoch_of(actor);
        for Held { message, .. } in held {
            self.deliver(env, calls, epoch, message);
        }
    }

    /// Opens an activation unless messages that local callers sent to it earlier are still in flight.
    pub(super) fn open_if_clear(&mut self, env: &mut Env, routing: &Routing, actor: &ActorId) -> Option<Effect> {
        let hosted = self.hosted.get_mut(actor)?;
        if !matches!(hosted.phase(), Phase::Closed) {
            return None;
        }
        let epoch = hosted.epoch();
        let actor = actor.clone();
        let path = routing.get(&actor).map(|route| &route.path);
        if matches!(path, Some(Path::Direct { leaving: None, .. })) {
            // A message that was on its way through the directory has landed elsewhere, at an earlier activation.
            return Some(Effect::LeavePath(actor, Place::Host(env.me, epoch)));
        }
        if path.is_none() || env.planted.is(Bug::OpenTooEarly) {
            hosted.set_phase(Phase::Active);
            env.command(Command::Open { actor, epoch });
        }
        None
    }

    /// Whether this activation is here and accepts messages.
    pub(super) fn is_active(&self, actor: &ActorId, epoch: ActivationEpoch) -> bool {
        let is_it = |hosted: &Hosted| hosted.epoch() == epoch && hosted.phase().takes_mail();
        self.hosted.get(actor).is_some_and(is_it)
    }

    /// Whether the runtime is releasing this activation, whose move is committed.
    pub(super) fn is_releasing(&self, actor: &ActorId, epoch: ActivationEpoch) -> bool {
        let is_it = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Releasing(_));
        self.hosted.get(actor).is_some_and(is_it)
    }

    /// Reports the end of an activation to the directory. Messages that arrive meanwhile wait for the confirmation.
    pub(super) fn leave(&mut self, env: &mut Env, actor: ActorId) {
        self.set_phase(&actor, Phase::Leaving);
        self.dedup.forget_actor(&actor);
        let epoch = self.epoch_of(&actor);
        let owner = env.directory_of(&actor);
        env.send(owner, Body::Directory(DirectoryBody::Ended { actor, epoch }));
    }

    /// Handles the directory's confirmation that an activation is over. Messages held meanwhile are routed to the next
    /// activation.
    pub(super) fn on_end_noted(&mut self, actor: &ActorId, epoch: ActivationEpoch) -> Option<Effect> {
        let is_leaving = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Leaving);
        let is_it = self.hosted.get(actor).is_some_and(is_leaving);
        is_it.then(|| Effect::SendElsewhere(self.remove(actor), None))
    }

    /// Drops an expired tombstone.
    pub(super) fn tombstone_due(&mut self, actor: &ActorId, at: Time) {
        let is_old =
            |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.until == Some(at));
        if self.hosted.get(actor).is_some_and(is_old) {
            self.remove(actor);
        }
    }

    /// Drops the tombstones of actors that moved to a node that died.
    pub(super) fn drop_tombstones_to(&mut self, node: NodeId) {
        let went_there = |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.to == node);
        self.hosted.retain(|hosted| !went_there(hosted));
    }

    /// The first actor with a message held that an actor sent and that may still have to be sent elsewhere.
    pub(super) fn unsettled_for(&self, sender: &ActorId) -> Option<&ActorId> {
        self.unsettled.iter().find(|actor| self.is_unsettled(actor, sender))
    }

    /// Whether a message of this sender is held for an actor, and may still have to be sent elsewhere.
    pub(super) fn is_unsettled(&self, actor: &ActorId, sender: &ActorId) -> bool {
        let hosted = self.hosted.get(actor).filter(|_| self.unsettled.contains(actor));
        hosted.is_some_and(|hosted| hosted.held().any(|held| is_actor(&held.message.header.caller, sender)))
    }
}

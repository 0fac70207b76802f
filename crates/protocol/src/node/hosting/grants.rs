//! Grants: the directory assigns activations to this node, and messages may arrive before the grant does.

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId, SlotEpoch};

use super::{Hosted, Hosting, InStep, Phase};
use crate::node::effect::Effect;
use crate::node::env::{Due, Env};
use crate::node::measures::NoRoom;
use crate::{Body, DirectoryBody, Slot, StateSource};

impl Hosting {
    /// Holds a message for a granted activation whose grant is still in flight, because the slot changed owners in
    /// between. Returns the message if a bound is reached.
    pub(super) fn expect_grant(
        &mut self,
        env: &mut Env,
        owner: NodeId,
        message: Arc<Message>,
        epoch: ActivationEpoch,
    ) -> Result<(), NoRoom> {
        let known = env.view().directory_of(&message.target);
        // Only the present owner can refer to a grant unknown here, and only to an earlier owner's: its own would have
        // arrived first.
        let is_on_the_way = known.node == owner && known.epoch > epoch.slot;
        if !is_on_the_way {
            env.return_to_origin(message, None);
            return Ok(());
        }
        let actor = message.target.clone();
        let may_come = known.previous.is_some_and(|granter| !env.is_dead(granter));
        if may_come && self.accepts_owner(&actor, epoch.slot) {
            self.insert(&actor, epoch, Phase::Expected);
            // The grant may also come from an earlier owner that is dead, so the wait is bounded.
            let at = env.now + env.limits.move_deadline;
            env.timers.set(at, Due::Expected(actor, epoch));
            self.hold(env, message, true)
        } else {
            self.deny(env, actor, epoch);
            env.return_to_origin(message, None);
            Ok(())
        }
    }

    /// Whether messages of a slot owner with this epoch are still accepted.
    pub(in crate::node) fn accepts_owner(&self, actor: &ActorId, epoch: SlotEpoch) -> bool {
        let floor = self.slot_floors.get(&Slot::of(actor));
        floor.is_none_or(|floor| epoch >= *floor)
    }

    /// Ignores the owners of a slot before this epoch from now on.
    pub(super) fn raise_floor(&mut self, slot: Slot, epoch: SlotEpoch) {
        let floor = self.slot_floors.entry(slot).or_insert(epoch);
        *floor = (*floor).max(epoch);
    }

    /// Denies an activation to the slot's owner, which believes it to be here. A late grant from an earlier owner is
    /// then ignored.
    fn deny(&mut self, env: &mut Env, actor: ActorId, epoch: ActivationEpoch) {
        let owner = env.view().directory_of(&actor);
        if epoch.slot < owner.epoch {
            self.raise_floor(Slot::of(&actor), owner.epoch);
        }
        let ended = DirectoryBody::Ended { actor, epoch };
        env.send(owner.node, Body::Directory(ended));
    }

    /// Gives up waiting for a grant.
    pub(in crate::node) fn give_up_grant(
        &mut self,
        env: &mut Env,
        actor: &ActorId,
        epoch: ActivationEpoch,
    ) -> Option<Effect> {
        let is_it = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Expected);
        if !self.hosted.get(actor).is_some_and(is_it) {
            return None;
        }
        self.deny(env, actor.clone(), epoch);
        Some(Effect::SendElsewhere(self.remove(actor), None))
    }

    /// The grants that are still to arrive.
    pub(in crate::node) fn expected(&self) -> Vec<(ActorId, ActivationEpoch)> {
        let unsettled = self.unsettled.iter().map(|actor| (actor, &self.hosted[actor]));
        let expected = unsettled.filter(|(_, hosted)| matches!(hosted.phase(), Phase::Expected));
        expected
            .map(|(actor, hosted)| (actor.clone(), hosted.epoch()))
            .collect()
    }

    /// Handles the grant of an activation to this node.
    pub(in crate::node) fn on_grant(
        &mut self,
        env: &mut Env,
        actor: ActorId,
        epoch: ActivationEpoch,
    ) -> Option<Effect> {
        if !self.accepts_owner(&actor, epoch.slot) {
            return None;
        }
        match self.hosted.get(&actor).map(|hosted| (hosted.epoch(), hosted.phase())) {
            None | Some((_, Phase::Departed(_))) => self.insert(&actor, epoch, Phase::Activating),
            Some((expected, Phase::Expected)) if expected <= epoch => {}
            // A new slot owner may grant this activation before it learns that the old one has ended.
            Some((ended, Phase::Leaving)) if ended < epoch => {}
            // The directory considered the source of this move gone before it received the commit request. It will
            // answer that request with the activation denied here, so the move must not wait for the answer.
            Some((earlier, Phase::MovingIn(incoming))) if earlier < epoch && incoming.step == InStep::Committing => {
                self.deny(env, actor.clone(), epoch);
                return Some(Effect::DropMoveIn(actor));
            }
            // An earlier activation is still being released, to a node that has died since; this node learned of that
            // late. It cannot take the actor back now, so the directory has to place it again.
            Some((earlier, _)) if earlier < epoch => {
                self.deny(env, actor, epoch);
                return None;
            }
            // INVARIANT: the directory grants an actor only when it knows of no activation, and this node has reported
            // or will report the ones it has. So a grant for an actor that is hosted here is stale.
            Some(_) => return None,
        }
        self.expect_mut(&actor).set_epoch(epoch);
        let member = env.view().members.get(&env.me);
        if self.hosts && !member.is_some_and(|member| member.draining) {
            Some(self.activate(env, actor, StateSource::Fresh))
        } else {
            self.leave(env, actor);
            None
        }
    }
}

//! Grants: the directory assigns activations to this node, and messages may arrive before the grant does.

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId};

use super::Node;
use crate::hosted::{Hosted, InStep, Phase};
use crate::timers::Due;
use crate::{Body, DirectoryBody, Slot, StateSource};

impl Node {
    /// Holds a message for a granted activation whose grant is still in flight, because the slot changed owners in
    /// between.
    pub(super) fn expect(&mut self, owner: NodeId, message: Arc<Message>, epoch: ActivationEpoch) {
        let known = self.sessions.view().directory_of(&message.target);
        // Only the present owner can refer to a grant unknown here, and only to an earlier owner's: its own would have
        // arrived first.
        let is_on_the_way = known.node == owner && known.epoch > epoch.slot;
        if !is_on_the_way {
            return self.return_to_origin(message, None);
        }
        let actor = message.target.clone();
        let may_come = known.previous.is_some_and(|granter| !self.sessions.is_dead(granter));
        if may_come && self.accepts_owner(&actor, epoch.slot) {
            self.insert_hosted(actor.clone(), epoch, Phase::Expected);
            self.hold(message, true);
            // The grant may also come from an earlier owner that is dead, so the wait is bounded.
            let at = self.sessions.now + self.sessions.limits.move_deadline;
            self.sessions.timers.set(at, Due::Expected(actor, epoch));
        } else {
            self.deny(actor, epoch);
            self.return_to_origin(message, None);
        }
    }

    /// Denies an activation to the slot's owner, which believes it to be here. A late grant from an earlier owner is
    /// then ignored.
    fn deny(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let owner = self.sessions.view().directory_of(&actor);
        if epoch.slot < owner.epoch {
            let floor = self.slot_floors.entry(Slot::of(&actor)).or_insert(owner.epoch);
            *floor = (*floor).max(owner.epoch);
        }
        let ended = DirectoryBody::Ended { actor, epoch };
        self.sessions.send(owner.node, Body::Directory(ended));
    }

    /// Gives up waiting for a grant.
    pub(super) fn give_up_grant(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        let is_it = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Expected);
        if self.hosted.get(actor).is_some_and(is_it) {
            self.deny(actor.clone(), epoch);
            let held = self.remove_hosted(actor);
            self.send_elsewhere(held, None);
        }
    }

    /// Gives up grants that may have been lost with a dead node.
    pub(super) fn grants_lost(&mut self) {
        let expected = self.limbo.iter().map(|actor| (actor.clone(), &self.hosted[actor]));
        let expected = expected.filter(|(_, hosted)| matches!(hosted.phase(), Phase::Expected));
        let expected: Vec<(ActorId, ActivationEpoch)> =
            expected.map(|(actor, hosted)| (actor, hosted.epoch())).collect();
        for (actor, epoch) in expected {
            self.give_up_grant(&actor, epoch);
        }
    }

    /// Handles the grant of an activation to this node.
    pub(super) fn on_grant(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        if !self.accepts_owner(&actor, epoch.slot) {
            return;
        }
        match self.hosted.get(&actor).map(|hosted| (hosted.epoch(), hosted.phase())) {
            None | Some((_, Phase::Departed(_))) => self.insert_hosted(actor.clone(), epoch, Phase::Activating),
            Some((expected, Phase::Expected)) if expected <= epoch => {}
            // A new slot owner may grant this activation before it learns that the old one has ended.
            Some((ended, Phase::Leaving)) if ended < epoch => {}
            // The directory considered the source of this move gone before it received the commit request. It will
            // answer that request with the activation denied here, so the move must not wait for the answer.
            Some((earlier, Phase::MovingIn(incoming))) if earlier < epoch && incoming.step == InStep::Committing => {
                self.deny(actor.clone(), epoch);
                return self.drop_move_in(&actor);
            }
            // An earlier activation is still being released, to a node that has died since; this node learned of that
            // late. It cannot take the actor back now, so the directory has to place it again.
            Some((earlier, _)) if earlier < epoch => return self.deny(actor, epoch),
            // INVARIANT: the directory grants an actor only when it knows of no activation, and this node has reported
            // or will report the ones it has. So a grant for an actor that is hosted here is stale.
            Some(_) => return,
        }
        self.hosted
            .get_mut(&actor)
            .expect("the match found it")
            .set_epoch(epoch);
        let takes = self.hosts
            && !self
                .sessions
                .view()
                .members
                .get(&self.sessions.me)
                .is_some_and(|member| member.draining);
        if takes {
            self.activate(actor, StateSource::Fresh);
        } else {
            self.leave(actor);
        }
    }
}

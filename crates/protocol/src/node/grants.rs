//! The directory gives actors to this node, and messages may come before it does.

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId};

use super::Node;
use crate::hosted::{Hosted, InStep, Phase};
use crate::timers::Due;
use crate::{Body, DirectoryBody, Slot, StateSource};

impl Node {
    /// A message came for an activation that the directory has granted to this node, and the grant is still on the way:
    /// the slot has changed hands in between.
    pub(super) fn expect(&mut self, owner: NodeId, message: Arc<Message>, epoch: ActivationEpoch) {
        let known = self.sessions.view().directory_of(&message.target);
        // Only the present owner can speak of a grant that this node has not heard of, and only of an earlier owner's: its
        // own would have come first.
        let is_on_the_way = known.node == owner && known.epoch > epoch.slot;
        if !is_on_the_way {
            return self.give_back(message, None);
        }
        let actor = message.target.clone();
        let may_come = known.previous.is_some_and(|granter| !self.sessions.is_dead(granter));
        if may_come && self.is_listened_to(&actor, epoch.slot) {
            self.insert_hosted(actor.clone(), epoch, Phase::Expected);
            self.hold(message, true);
            // It may also come from an owner before, who may be dead: it is not waited for for ever.
            let at = self.sessions.now + self.sessions.limits.move_deadline;
            self.sessions.timers.set(at, Due::Expected(actor, epoch));
        } else {
            self.deny(actor, epoch);
            self.give_back(message, None);
        }
    }

    /// Tells the owner of the slot that an activation that it believes to be here never will be. Should its grant come after
    /// all, from an earlier owner, it is not listened to.
    fn deny(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let owner = self.sessions.view().directory_of(&actor);
        if epoch.slot < owner.epoch {
            let floor = self.slot_floors.entry(Slot::of(&actor)).or_insert(owner.epoch);
            *floor = (*floor).max(owner.epoch);
        }
        let ended = DirectoryBody::Ended { actor, epoch };
        self.sessions.send(owner.node, Body::Directory(ended));
    }

    /// A grant is waited for no longer.
    pub(super) fn give_up_grant(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        let is_it = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Expected);
        if self.hosted.get(actor).is_some_and(is_it) {
            self.deny(actor.clone(), epoch);
            let held = self.remove_hosted(actor);
            self.send_elsewhere(held, None);
        }
    }

    /// A node died, and may have taken grants with it that this node waits for.
    pub(super) fn grants_lost(&mut self) {
        let expected = self.limbo.iter().map(|actor| (actor.clone(), &self.hosted[actor]));
        let expected = expected.filter(|(_, hosted)| matches!(hosted.phase(), Phase::Expected));
        let expected: Vec<(ActorId, ActivationEpoch)> =
            expected.map(|(actor, hosted)| (actor, hosted.epoch())).collect();
        for (actor, epoch) in expected {
            self.give_up_grant(&actor, epoch);
        }
    }

    /// The directory gives an actor to this node.
    pub(super) fn on_grant(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        if !self.is_listened_to(&actor, epoch.slot) {
            return;
        }
        match self.hosted.get(&actor).map(|hosted| (hosted.epoch(), hosted.phase())) {
            None | Some((_, Phase::Departed(_))) => self.insert_hosted(actor.clone(), epoch, Phase::Activating),
            Some((expected, Phase::Expected)) if expected <= epoch => {}
            // A new owner of the slot did not need to hear of the end of the old activation before it granted this one.
            Some((ended, Phase::Leaving)) if ended < epoch => {}
            // The directory took the source of this move for gone before it heard the question that decides the move. It will
            // answer that question with the activation that is given back here, so the move must not wait for the answer.
            Some((earlier, Phase::MovingIn(incoming))) if earlier < epoch && incoming.step == InStep::Committing => {
                self.deny(actor.clone(), epoch);
                return self.drop_move_in(&actor);
            }
            // An earlier activation is still going from here: it went to a node that has died since, of which this node
            // heard late. It can't be taken back in just now, so the directory is told to place the actor anew.
            Some((earlier, _)) if earlier < epoch => return self.deny(actor, epoch),
            // INVARIANT: the directory grants an actor only when no activation is left that it knows of, and this node
            // has answered or will answer for what it has; a grant for what is here is a late word.
            Some(_) => return,
        }
        self.hosted.get_mut(&actor).expect("it is there").set_epoch(epoch);
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

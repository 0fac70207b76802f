//! Actors on this node: from the directory's grant to their end.

use std::collections::VecDeque;

use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered, Overloaded, SlotEpoch, Time};

use super::Node;
use crate::hosted::{Held, Hosted, Phase};
use crate::{Body, Command, DirectoryBody, Slot, StateSource};

/// How often a message may be passed on: far more than any sequence of moves in a message's lifetime needs, and a limit
/// in case two nodes each take the other for the host.
pub(super) const HOPS_MAX: u8 = 32;

impl Node {
    /// Takes a message for an actor that is, was or will be here.
    pub(super) fn accept(&mut self, message: Message, hops: u8) {
        let hosted = self.hosted.get_mut(&message.target).expect("the caller has looked");
        match &hosted.phase {
            Phase::Closed | Phase::Active | Phase::MovingOut(_) => {
                let epoch = hosted.epoch;
                self.landed(&message, hops);
                self.deliver(epoch, message);
            }
            Phase::Departed(departed) => {
                let (to, epoch) = (departed.to, departed.to_epoch);
                if self.is_own_sending(&message, hops) {
                    // The route that followed the actor was forgotten because it was quiet.
                    self.send_along_route(message);
                } else if self.links.is_dead(to) || self.links.directory_of(&message.target) == self.links.me {
                    // The directory knows better than a memory.
                    self.ask_directory(message, hops);
                } else {
                    self.pass_on(message, hops, to, Some(epoch));
                }
            }
            _ => self.hold(message, hops),
        }
    }

    /// Whether a message comes from a caller here, and was not passed on by anybody.
    fn is_own_sending(&self, message: &Message, hops: u8) -> bool {
        hops == 0 && message.header.call.origin == self.links.me
    }

    fn deliver(&mut self, epoch: ActivationEpoch, message: Message) {
        self.links.command(Command::Deliver {
            actor: message.target.clone(),
            epoch,
            message,
        });
    }

    /// Keeps a message until it is clear what becomes of the actor. If it may have to go elsewhere, its origin is told
    /// that it is not settled.
    fn hold(&mut self, message: Message, hops: u8) {
        let own = self.is_own_sending(&message, hops);
        let hosted = self.hosted.get_mut(&message.target).expect("the caller has looked");
        if hosted.held.len() >= self.links.limits.held_per_actor || hops >= HOPS_MAX {
            self.turn_away(message, hops, CallError::Overloaded(Overloaded::Actor));
            return;
        }
        if !hosted.phase.is_limbo() {
            self.landed(&message, hops);
            self.push_held(Held { message, hops: 0 });
        } else if own {
            self.push_held(Held { message, hops: 0 });
        } else {
            let held = self.keep(message, hops);
            self.push_held(held);
        }
    }

    fn push_held(&mut self, held: Held) {
        let hosted = self.hosted.get_mut(&held.message.target).expect("the caller has looked");
        hosted.held.push_back(held);
    }

    /// Tells a message's origin that this node keeps it without it being settled.
    pub(super) fn keep(&mut self, message: Message, hops: u8) -> Held {
        let hops = hops + 1;
        self.links.say(
            message.header.call.origin,
            Body::PassedOn {
                actor: message.target.clone(),
                call: message.header.call,
                to: self.links.me,
                epoch: None,
                hops,
                caller: message.header.caller.clone(),
            },
        );
        Held { message, hops }
    }

    /// Passes a message on to another node, and tells its origin.
    pub(super) fn pass_on(&mut self, message: Message, hops: u8, to: NodeId, epoch: Option<ActivationEpoch>) {
        if hops >= HOPS_MAX {
            self.turn_away(message, hops, CallError::NotDelivered(NotDelivered::NotHere));
            return;
        }
        let hops = hops + 1;
        self.links.say(
            message.header.call.origin,
            Body::PassedOn {
                actor: message.target.clone(),
                call: message.header.call,
                to,
                epoch,
                hops,
                caller: message.header.caller.clone(),
            },
        );
        // Only the owner of the slot knows of a grant that may still be on its way; a memory may be old.
        let granted = epoch.filter(|_| self.links.directory_of(&message.target) == self.links.me);
        self.links.say(to, Body::Passed { message, granted, hops });
    }

    /// Sends what was held for an actor that is not here after all on its way again, in order.
    pub(super) fn send_elsewhere(&mut self, held: VecDeque<Held>) {
        for Held { message, hops } in held {
            if self.is_own_sending(&message, hops) {
                self.send_along_route(message);
            } else {
                self.ask_directory(message, hops);
            }
        }
    }

    /// A message came for an activation that the directory has granted to this node, and the grant is still on the way:
    /// the slot has changed hands in between.
    pub(super) fn expect(&mut self, message: Message, epoch: ActivationEpoch, hops: u8) {
        if self.slot_floors.get(&Slot::of(&message.target)) > Some(&epoch.slot) {
            // That grant will not be listened to.
            return self.ask_directory(message, hops);
        }
        self.insert_hosted(message.target.clone(), epoch, Phase::Expected);
        self.hold(message, hops);
    }

    /// Puts an actor that is not in the table, or only as a memory, into a phase.
    pub(super) fn insert_hosted(&mut self, actor: ActorId, epoch: ActivationEpoch, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        }
        let hosted = Hosted {
            epoch,
            attempts: 0,
            phase,
            held: VecDeque::new(),
        };
        self.hosted.insert(actor, hosted);
    }

    /// Changes an actor's phase and keeps the index of those in limbo.
    pub(super) fn set_phase(&mut self, actor: &ActorId, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        } else {
            self.limbo.remove(actor);
        }
        self.hosted.get_mut(actor).expect("the caller has it").phase = phase;
    }

    /// Forgets an actor and returns what was held for it.
    pub(super) fn remove_hosted(&mut self, actor: &ActorId) -> VecDeque<Held> {
        self.limbo.remove(actor);
        self.hosted.remove(actor).map(|hosted| hosted.held).unwrap_or_default()
    }

    /// The directory gives an actor to this node.
    pub(super) fn on_grant(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        if !self.is_listened_to(&actor, epoch.slot) {
            return;
        }
        match self.hosted.get(&actor).map(|hosted| (hosted.epoch, &hosted.phase)) {
            None | Some((_, Phase::Departed(_))) => self.insert_hosted(actor.clone(), epoch, Phase::Activating),
            Some((expected, Phase::Expected)) if expected <= epoch => {}
            // A new owner of the slot did not need to hear of the end of the old activation before it granted this one.
            Some((ended, Phase::Leaving)) if ended < epoch => {}
            // INVARIANT: the directory grants an actor only when no activation is left that it knows of, and this node
            // has answered or will answer for what it has; a grant for what is here is a late word.
            Some(_) => return,
        }
        self.hosted.get_mut(&actor).expect("it is there").epoch = epoch;
        let takes = self.hosts && !self.links.view().members.get(&self.links.me).is_some_and(|member| member.draining);
        if takes {
            self.activate(actor, StateSource::Fresh);
        } else {
            self.leave(actor);
        }
    }

    /// Has the runtime bring an actor into memory. Everything that is held is in its final order from now on.
    pub(super) fn activate(&mut self, actor: ActorId, source: StateSource) {
        self.set_phase(&actor, Phase::Activating);
        let hosted = self.hosted.get_mut(&actor).expect("the caller has it");
        let epoch = hosted.epoch;
        let settled: Vec<(Message, u8)> = hosted
            .held
            .iter_mut()
            .filter(|held| held.hops > 0)
            .map(|held| (held.message.clone(), std::mem::take(&mut held.hops)))
            .collect();
        for (message, hops) in settled {
            self.landed(&message, hops);
        }
        let command = Command::Activate {
            actor: actor.clone(),
            epoch,
            source,
        };
        self.links.command(command);
        self.route_ends_here(&actor, epoch);
    }

    /// The runtime has brought an actor into memory, or could not.
    pub(super) fn on_activated(&mut self, actor: ActorId, epoch: ActivationEpoch, result: Result<(), CallError>) {
        let Some(hosted) = self.hosted.get_mut(&actor) else {
            return;
        };
        if hosted.epoch != epoch || !matches!(hosted.phase, Phase::Activating) {
            return;
        }
        let held = std::mem::take(&mut hosted.held);
        match result {
            Ok(()) => {
                self.set_phase(&actor, Phase::Closed);
                for Held { message, .. } in held {
                    self.deliver(epoch, message);
                }
                self.open_if_clear(&actor);
            }
            Err(error) => {
                for Held { message, .. } in held {
                    self.turn_away(message, 0, error.clone());
                }
                self.leave(actor);
            }
        }
    }

    /// Lets an activation run, if nothing that callers here have sent to it before is still under way.
    pub(super) fn open_if_clear(&mut self, actor: &ActorId) {
        let Some(hosted) = self.hosted.get_mut(actor) else {
            return;
        };
        if matches!(hosted.phase, Phase::Closed) && !self.routes.contains_key(actor) {
            hosted.phase = Phase::Active;
            let (actor, epoch) = (actor.clone(), hosted.epoch);
            self.links.command(Command::Open { actor, epoch });
        }
    }

    /// The runtime has ended an activation by itself.
    pub(super) fn on_passivated(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let Some(hosted) = self.hosted.get(&actor) else {
            return;
        };
        if hosted.epoch == epoch && hosted.phase.takes_mail() {
            self.move_out_ended_by_itself(&actor);
            self.leave(actor);
        }
    }

    /// Mail found the activation gone. It was delivered before anything that is held came, so it stays in front.
    pub(super) fn on_bounced(&mut self, epoch: ActivationEpoch, message: Message) {
        let actor = message.target.clone();
        self.on_passivated(actor.clone(), epoch);
        match self.hosted.get(&actor) {
            Some(hosted) if hosted.epoch == epoch && matches!(hosted.phase, Phase::Leaving) => self.hold(message, 0),
            Some(_) => self.accept(message, 0),
            None if self.is_own_sending(&message, 0) => self.send_along_route(message),
            None => self.ask_directory(message, 0),
        }
    }

    /// The activation is over: the directory is told, and what comes meanwhile waits for its word.
    fn leave(&mut self, actor: ActorId) {
        self.set_phase(&actor, Phase::Leaving);
        let epoch = self.hosted[&actor].epoch;
        let owner = self.links.directory_of(&actor);
        self.links.say(owner, Body::Directory(DirectoryBody::Ended { actor, epoch }));
    }

    /// The directory knows that the activation is over: what came meanwhile finds the actor's next one.
    pub(super) fn on_end_noted(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let is_leaving = |hosted: &Hosted| hosted.epoch == epoch && matches!(hosted.phase, Phase::Leaving);
        if self.hosted.get(&actor).is_some_and(is_leaving) {
            let held = self.remove_hosted(&actor);
            self.send_elsewhere(held);
        }
    }

    /// Whether a slot's owner of this epoch is still listened to.
    pub(super) fn is_listened_to(&self, actor: &ActorId, epoch: SlotEpoch) -> bool {
        self.slot_floors.get(&Slot::of(actor)).is_none_or(|floor| epoch >= *floor)
    }

    /// Nobody needs to be told any more where an actor went.
    pub(super) fn tombstone_due(&mut self, actor: &ActorId, at: Time) {
        let is_old = |hosted: &Hosted| matches!(&hosted.phase, Phase::Departed(departed) if departed.until == Some(at));
        if self.hosted.get(actor).is_some_and(is_old) {
            self.remove_hosted(actor);
        }
    }

    /// Slots have new owners. Those who have something to say to an old one say it to the new one, and what waits for an
    /// old one's word goes to the new one.
    pub(super) fn hosted_follow_owners(&mut self, changed: impl Fn(&ActorId) -> bool) {
        let concerned: Vec<ActorId> = self.limbo.iter().filter(|actor| changed(actor)).cloned().collect();
        for actor in concerned {
            match &self.hosted[&actor].phase {
                Phase::Expected => {
                    let held = self.remove_hosted(&actor);
                    self.send_elsewhere(held);
                }
                Phase::Leaving => self.leave(actor),
                _ => {}
            }
        }
    }
}

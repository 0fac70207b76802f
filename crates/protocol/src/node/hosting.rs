//! Actors on this node: from the directory's grant to their end.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, NodeId, SlotEpoch, Time};

use super::Node;
use super::measures::Full;
use crate::bug::Bug;
use crate::hosted::{Held, Hosted, Phase};
use crate::route::{Path, Place};
use crate::timers::Due;
use crate::{Body, Command, DirectoryBody, Slot, StateSource};

impl Node {
    /// Takes a message of a caller here for an actor that is, was or will be here.
    pub(super) fn accept_own(&mut self, message: Arc<Message>) {
        let hosted = &self.hosted[&message.target];
        if hosted.phase().takes_mail() {
            let epoch = hosted.epoch();
            self.deliver(epoch, message);
        } else if matches!(hosted.phase(), Phase::Departed(_)) {
            self.send_along_route(message);
        } else {
            self.hold(message, false);
        }
    }

    /// Takes a message from another node that is meant for this activation, if that is here or certain to come. If it came
    /// through the directory, `from` is who passed it on.
    pub(super) fn accept(&mut self, message: Arc<Message>, meant: ActivationEpoch, from: Option<NodeId>) {
        if !message.header.one_way && self.sessions.is_full(message.header.call.origin) {
            // So much waits for that node already that a reply would only make it worse.
            return self.turn_away_from(Full::Link, message);
        }
        let passed = from.is_some();
        let Some(hosted) = self.hosted.get(&message.target) else {
            return match from {
                Some(owner) => self.expect(owner, message, meant),
                None => self.give_back(message, None),
            };
        };
        let epoch = hosted.epoch();
        let meant = match self.sessions.planted.is(Bug::TakeAnyEpoch) && hosted.phase().takes_mail() {
            true => epoch,
            false => meant,
        };
        match hosted.phase() {
            Phase::Closed | Phase::Active | Phase::MovingOut(_) if epoch == meant => {
                if passed {
                    // Said when it is known that the mail did not bounce.
                    self.landing.push((message.target.clone(), message.header.call, meant));
                    self.sessions.timers.set(self.sessions.now, Due::Landing);
                }
                self.deliver(epoch, message);
            }
            Phase::Closed | Phase::Active | Phase::MovingOut(_) if epoch > meant => {
                let place = Some((self.sessions.me, epoch));
                self.give_back(message, place);
            }
            Phase::Activating if epoch == meant => {
                if passed {
                    self.report_landed(&message, meant);
                }
                self.hold(message, false);
            }
            // It is meant for what this activation becomes: the move is decided, even if this node has not heard of it.
            Phase::MovingIn(incoming) if epoch < meant && incoming.released => {
                if passed {
                    self.report_landed(&message, meant);
                }
                self.hold(message, false);
            }
            Phase::MovingIn(_) if epoch < meant => self.keep(message, passed),
            Phase::Expected | Phase::Releasing(_) if epoch == meant => self.keep(message, passed),
            Phase::Departed(departed) if departed.to_epoch > meant => {
                let place = Some((departed.to, departed.to_epoch));
                self.give_back(message, place);
            }
            _ => self.give_back(message, None),
        }
    }

    /// Returns a message to its origin.
    pub(super) fn give_back(&mut self, message: Arc<Message>, place: Option<(NodeId, ActivationEpoch)>) {
        let origin = message.header.call.origin;
        self.sessions.send(origin, Body::Returned { message, place });
    }

    fn report_landed(&mut self, message: &Message, epoch: ActivationEpoch) {
        let (actor, call) = (message.target.clone(), message.header.call);
        self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
    }

    /// No mail bounces any more that was delivered before this event: those who wait for it are told.
    pub(super) fn report_all_landed(&mut self) {
        for (actor, call, epoch) in std::mem::take(&mut self.landing) {
            self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
        }
    }

    /// Keeps a message from another node, whose origin must not take it for settled because it is acknowledged.
    fn keep(&mut self, message: Arc<Message>, passed: bool) {
        if !passed && !self.sessions.planted.is(Bug::KeepSilently) {
            let (actor, call, caller) = (
                message.target.clone(),
                message.header.call,
                message.header.caller.clone(),
            );
            self.sessions.send(call.origin, Body::Kept { actor, call, caller });
        }
        self.hold(message, true);
    }

    fn deliver(&mut self, epoch: ActivationEpoch, message: Arc<Message>) {
        if message.header.request.is_some() && !self.is_to_run(&message) {
            return;
        }
        self.sessions.command(Command::Deliver { epoch, message });
    }

    /// Keeps a message until it is clear what becomes of the actor.
    pub(super) fn hold(&mut self, message: Arc<Message>, passed: bool) {
        let hosted = self.hosted.get_mut(&message.target).expect("the caller has looked");
        if hosted.held().len() >= self.sessions.limits.held_per_actor {
            self.turn_away_from(Full::Actor, message);
        } else {
            hosted.held_mut().push_back(Held { message, passed });
        }
    }

    /// What was held for an actor that is not here after all finds its way again, in order.
    pub(super) fn send_elsewhere(&mut self, held: VecDeque<Held>, place: Option<(NodeId, ActivationEpoch)>) {
        if self.sessions.planted.is(Bug::ForgetHeld) {
            return;
        }
        for Held { message, passed } in held {
            if message.header.call.origin == self.sessions.me && !passed {
                self.send_own(message);
            } else {
                self.give_back(message, place);
            }
        }
    }

    /// Puts an actor that is not in the table, or only as a memory, into a phase.
    pub(super) fn insert_hosted(&mut self, actor: ActorId, epoch: ActivationEpoch, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        }
        self.hosted.insert(&actor, Hosted::new(epoch, phase));
    }

    /// Changes an actor's phase and keeps the index of those in limbo.
    pub(super) fn set_phase(&mut self, actor: &ActorId, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        } else {
            self.limbo.remove(actor);
        }
        let hosted = self.hosted.get_mut(actor).expect("the caller has it");
        hosted.set_phase(phase);
    }

    /// Forgets an actor and returns what was held for it.
    pub(super) fn remove_hosted(&mut self, actor: &ActorId) -> VecDeque<Held> {
        self.limbo.remove(actor);
        let removed = self.hosted.remove(actor);
        removed.map(|mut hosted| hosted.take_held()).unwrap_or_default()
    }

    /// Has the runtime bring an actor into memory. Everything that is held is in its final order from now on.
    pub(super) fn activate(&mut self, actor: ActorId, source: StateSource) {
        self.set_phase(&actor, Phase::Activating);
        let epoch = self.hosted[&actor].epoch();
        self.held_have_landed(&actor, epoch);
        let command = Command::Activate {
            actor: actor.clone(),
            epoch,
            source,
        };
        self.sessions.command(command);
        let here = Place::Host(self.sessions.me, epoch);
        self.leave_path(&actor, here);
    }

    /// What is held for an actor has its place in the actor's queue: those who wait for that are told.
    pub(super) fn held_have_landed(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        let hosted = self.hosted.get_mut(actor).expect("the caller has it");
        let calls: Vec<CallId> = hosted
            .held_mut()
            .iter_mut()
            .filter_map(|held| std::mem::take(&mut held.passed).then_some(held.message.header.call))
            .collect();
        for call in calls {
            let actor = actor.clone();
            self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
        }
    }

    /// The runtime has brought an actor into memory, or could not.
    pub(super) fn on_activated(&mut self, actor: ActorId, epoch: ActivationEpoch, result: Result<(), CallError>) {
        let Some(hosted) = self.hosted.get_mut(&actor) else {
            return;
        };
        if hosted.epoch() != epoch || !matches!(hosted.phase(), Phase::Activating) {
            return;
        }
        let held = hosted.take_held();
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
                    self.turn_away(message, error.clone());
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
        if !matches!(hosted.phase(), Phase::Closed) {
            return;
        }
        let epoch = hosted.epoch();
        let path = self.routes.get(actor).map(|route| &route.path);
        if matches!(path, Some(Path::Direct { leaving: None, .. })) {
            // A message that was on its way through the directory has landed elsewhere, at an activation before this one.
            return self.leave_path(actor, Place::Host(self.sessions.me, epoch));
        }
        if path.is_none() || self.sessions.planted.is(Bug::OpenTooEarly) {
            hosted.set_phase(Phase::Active);
            let actor = actor.clone();
            self.sessions.command(Command::Open { actor, epoch });
        }
    }

    /// The runtime has ended an activation by itself.
    pub(super) fn on_passivated(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let Some(hosted) = self.hosted.get(&actor) else {
            return;
        };
        if hosted.epoch() == epoch && hosted.phase().takes_mail() {
            self.move_out_ended_by_itself(&actor);
            self.leave(actor);
        }
    }

    /// Mail found the activation gone: it comes back before anything that was sent after it does.
    pub(super) fn on_bounced(&mut self, epoch: ActivationEpoch, message: Arc<Message>) {
        self.landing.retain(|(_, call, _)| *call != message.header.call);
        self.on_passivated(message.target.clone(), epoch);
        if message.header.call.origin == self.sessions.me {
            self.send_own(message);
        } else {
            self.give_back(message, None);
        }
    }

    /// The activation is over: the directory is told, and what comes meanwhile waits for its word.
    pub(super) fn leave(&mut self, actor: ActorId) {
        self.set_phase(&actor, Phase::Leaving);
        self.requests.forget_actor(&actor);
        let epoch = self.hosted[&actor].epoch();
        let owner = self.sessions.directory_of(&actor);
        self.sessions
            .send(owner, Body::Directory(DirectoryBody::Ended { actor, epoch }));
    }

    /// The directory knows that the activation is over: what came meanwhile finds the actor's next one.
    pub(super) fn on_end_noted(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let is_leaving = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Leaving);
        if self.hosted.get(&actor).is_some_and(is_leaving) {
            let held = self.remove_hosted(&actor);
            self.send_elsewhere(held, None);
        }
    }

    /// Whether a slot's owner of this epoch is still listened to.
    pub(super) fn is_listened_to(&self, actor: &ActorId, epoch: SlotEpoch) -> bool {
        self.slot_floors
            .get(&Slot::of(actor))
            .is_none_or(|floor| epoch >= *floor)
    }

    /// Nobody needs to be told any more where an actor went.
    pub(super) fn tombstone_due(&mut self, actor: &ActorId, at: Time) {
        let is_old =
            |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.until == Some(at));
        if self.hosted.get(actor).is_some_and(is_old) {
            self.remove_hosted(actor);
        }
    }

    /// Slots have new owners. Those who have something to send to an old one send it to the new one, and what waits for an
    /// old one's word goes to the new one.
    pub(super) fn hosted_follow_owners(&mut self, changed: impl Fn(&ActorId) -> bool) {
        let concerned: Vec<ActorId> = self.limbo.iter().filter(|actor| changed(actor)).cloned().collect();
        for actor in concerned {
            match self.hosted[&actor].phase() {
                Phase::Expected => {
                    let held = self.remove_hosted(&actor);
                    self.send_elsewhere(held, None);
                }
                Phase::Leaving => self.leave(actor),
                _ => {}
            }
        }
    }
}

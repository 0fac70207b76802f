//! Activations on this node, from the directory's grant to their end.

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
    /// Accepts a message of a local caller for an actor that is, was or will be hosted here.
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

    /// Accepts a message from another node for the activation `meant`, if it is here or certain to arrive. `from` is
    /// the directory owner that forwarded the message, if it came through the directory.
    pub(super) fn accept(&mut self, message: Arc<Message>, meant: ActivationEpoch, from: Option<NodeId>) {
        if !message.header.one_way && self.sessions.is_full(message.header.call.origin) {
            // The origin's credit is used up already; a reply would only add to the backlog.
            return self.reject_full(Full::Link, message);
        }
        let passed = from.is_some();
        let Some(hosted) = self.hosted.get(&message.target) else {
            return match from {
                Some(owner) => self.expect(owner, message, meant),
                None => self.return_to_origin(message, None),
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
                    // Reported once it is known that the message did not bounce.
                    self.landing.push((message.target.clone(), message.header.call, meant));
                    self.sessions.timers.set(self.sessions.now, Due::Landing);
                }
                self.deliver(epoch, message);
            }
            Phase::Closed | Phase::Active | Phase::MovingOut(_) if epoch > meant => {
                let place = Some((self.sessions.me, epoch));
                self.return_to_origin(message, place);
            }
            Phase::Activating if epoch == meant => {
                if passed {
                    self.report_landed(&message, meant);
                }
                self.hold(message, false);
            }
            // `meant` is the epoch that this activation is about to get: the move is decided even if this node has not
            // learned so.
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
                self.return_to_origin(message, place);
            }
            _ => self.return_to_origin(message, None),
        }
    }

    /// Returns a message to its origin.
    pub(super) fn return_to_origin(&mut self, message: Arc<Message>, place: Option<(NodeId, ActivationEpoch)>) {
        let origin = message.header.call.origin;
        self.sessions.send(origin, Body::Returned { message, place });
    }

    fn report_landed(&mut self, message: &Message, epoch: ActivationEpoch) {
        let (actor, call) = (message.target.clone(), message.header.call);
        self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
    }

    /// Reports the messages delivered before this event as landed: none of them can bounce any more.
    pub(super) fn report_all_landed(&mut self) {
        for (actor, call, epoch) in std::mem::take(&mut self.landing) {
            self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
        }
    }

    /// Keeps a message from another node. Its origin must not treat it as settled just because its frame is
    /// acknowledged.
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
        if message.header.request.is_some() && !self.should_run(&message) {
            return;
        }
        self.sessions.command(Command::Deliver { epoch, message });
    }

    /// Holds a message until the actor's fate is decided.
    pub(super) fn hold(&mut self, message: Arc<Message>, passed: bool) {
        let hosted = self
            .hosted
            .get_mut(&message.target)
            .expect("the caller checked that it is hosted");
        if hosted.held().len() >= self.sessions.limits.held_per_actor {
            self.reject_full(Full::Actor, message);
        } else {
            hosted.held_mut().push_back(Held { message, passed });
        }
    }

    /// Re-routes messages held for an actor that does not run here after all, in order.
    pub(super) fn send_elsewhere(&mut self, held: VecDeque<Held>, place: Option<(NodeId, ActivationEpoch)>) {
        if self.sessions.planted.is(Bug::ForgetHeld) {
            return;
        }
        for Held { message, passed } in held {
            if message.header.call.origin == self.sessions.me && !passed {
                self.send_own(message);
            } else {
                self.return_to_origin(message, place);
            }
        }
    }

    /// Adds an actor that is not in the table, or only as a tombstone.
    pub(super) fn insert_hosted(&mut self, actor: ActorId, epoch: ActivationEpoch, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        }
        self.hosted.insert(&actor, Hosted::new(epoch, phase));
    }

    /// Changes an actor's phase and keeps the limbo index up to date.
    pub(super) fn set_phase(&mut self, actor: &ActorId, phase: Phase) {
        if phase.is_limbo() {
            self.limbo.insert(actor.clone());
        } else {
            self.limbo.remove(actor);
        }
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
        hosted.set_phase(phase);
    }

    /// Removes an actor and returns the messages held for it.
    pub(super) fn remove_hosted(&mut self, actor: &ActorId) -> VecDeque<Held> {
        self.limbo.remove(actor);
        let removed = self.hosted.remove(actor);
        removed.map(|mut hosted| hosted.take_held()).unwrap_or_default()
    }

    /// Has the runtime load an actor. The order of all held messages is final from here on.
    pub(super) fn activate(&mut self, actor: ActorId, source: StateSource) {
        self.set_phase(&actor, Phase::Activating);
        let epoch = self.hosted[&actor].epoch();
        self.report_held_landed(&actor, epoch);
        let command = Command::Activate {
            actor: actor.clone(),
            epoch,
            source,
        };
        self.sessions.command(command);
        let here = Place::Host(self.sessions.me, epoch);
        self.leave_path(&actor, here);
    }

    /// Reports held messages as landed: each now has its final place in the actor's queue.
    pub(super) fn report_held_landed(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
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

    /// Handles the runtime's result of an activation.
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
                    self.reject(message, error.clone());
                }
                self.leave(actor);
            }
        }
    }

    /// Opens an activation unless messages that local callers sent to it earlier are still in flight.
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
            // A message that was on its way through the directory has landed elsewhere, at an earlier activation.
            return self.leave_path(actor, Place::Host(self.sessions.me, epoch));
        }
        if path.is_none() || self.sessions.planted.is(Bug::OpenTooEarly) {
            hosted.set_phase(Phase::Active);
            let actor = actor.clone();
            self.sessions.command(Command::Open { actor, epoch });
        }
    }

    /// Handles an activation that ended by itself.
    pub(super) fn on_passivated(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let Some(hosted) = self.hosted.get(&actor) else {
            return;
        };
        if hosted.epoch() == epoch && hosted.phase().takes_mail() {
            self.move_out_ended_by_itself(&actor);
            self.leave(actor);
        }
    }

    /// Handles a message that found its activation gone. The driver returns it before any message sent later.
    pub(super) fn on_bounced(&mut self, epoch: ActivationEpoch, message: Arc<Message>) {
        self.landing.retain(|(_, call, _)| *call != message.header.call);
        self.on_passivated(message.target.clone(), epoch);
        if message.header.call.origin == self.sessions.me {
            self.send_own(message);
        } else {
            self.return_to_origin(message, None);
        }
    }

    /// Reports the end of an activation to the directory. Messages that arrive meanwhile wait for the confirmation.
    pub(super) fn leave(&mut self, actor: ActorId) {
        self.set_phase(&actor, Phase::Leaving);
        self.requests.forget_actor(&actor);
        let epoch = self.hosted[&actor].epoch();
        let owner = self.sessions.directory_of(&actor);
        self.sessions
            .send(owner, Body::Directory(DirectoryBody::Ended { actor, epoch }));
    }

    /// Handles the directory's confirmation that an activation is over. Messages held meanwhile are routed to the next
    /// activation.
    pub(super) fn on_end_noted(&mut self, actor: ActorId, epoch: ActivationEpoch) {
        let is_leaving = |hosted: &Hosted| hosted.epoch() == epoch && matches!(hosted.phase(), Phase::Leaving);
        if self.hosted.get(&actor).is_some_and(is_leaving) {
            let held = self.remove_hosted(&actor);
            self.send_elsewhere(held, None);
        }
    }

    /// Whether messages of a slot owner with this epoch are still accepted.
    pub(super) fn accepts_owner(&self, actor: &ActorId, epoch: SlotEpoch) -> bool {
        self.slot_floors
            .get(&Slot::of(actor))
            .is_none_or(|floor| epoch >= *floor)
    }

    /// Drops an expired tombstone.
    pub(super) fn tombstone_due(&mut self, actor: &ActorId, at: Time) {
        let is_old =
            |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.until == Some(at));
        if self.hosted.get(actor).is_some_and(is_old) {
            self.remove_hosted(actor);
        }
    }

    /// Redirects to the new slot owners: unsent reports go to them, and so do messages that waited for an old owner's
    /// answer.
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

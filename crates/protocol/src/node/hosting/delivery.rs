//! Messages for activations here: delivered, held until the actor's fate is decided, or returned.

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallId, Message, NodeId, Outcome};

use super::{Held, Hosted, Hosting, Phase};
use crate::bug::Bug;
use crate::node::calls::Calls;
use crate::node::dedup::Arrival;
use crate::node::env::{Due, Env};
use crate::node::measures::{Full, NoRoom};
use crate::node::routing::Routing;
use crate::{Body, Command};

impl Hosting {
    /// Whether a message of a local caller goes to the actor here. It does not if the actor has left, or if earlier
    /// messages of local callers are still on another path.
    pub(in crate::node) fn takes_own(&self, routing: &Routing, actor: &ActorId) -> bool {
        match self.hosted.get(actor).map(Hosted::phase) {
            None | Some(Phase::Departed(_)) => false,
            Some(phase) => phase.holds_own() || routing.get(actor).is_none(),
        }
    }

    /// Accepts a message of a local caller for an actor that is or will be here. Returns the message if a bound is
    /// reached.
    pub(in crate::node) fn accept_own(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        message: Arc<Message>,
    ) -> Result<(), NoRoom> {
        let hosted = &self.hosted[&message.target];
        if !hosted.phase().takes_mail() {
            return self.hold(env, message, false);
        }
        let epoch = hosted.epoch();
        self.deliver(env, calls, epoch, message);
        Ok(())
    }

    /// Accepts a message from another node for the activation `meant`, if it is here or certain to arrive. `from` is
    /// the directory owner that forwarded the message, if it came through the directory. Returns the message if a bound
    /// is reached.
    pub(in crate::node) fn accept(
        &mut self,
        env: &mut Env,
        calls: &mut Calls,
        message: Arc<Message>,
        meant: ActivationEpoch,
        from: Option<NodeId>,
    ) -> Result<(), NoRoom> {
        if !message.header.one_way && env.is_full(message.header.call.origin) {
            // The origin's credit is used up already; a reply would only add to the backlog.
            return Err(NoRoom(Full::Link, message));
        }
        let passed = from.is_some();
        let Some(hosted) = self.hosted.get(&message.target) else {
            match from {
                Some(owner) => return self.expect_grant(env, owner, message, meant),
                None => env.return_to_origin(message, None),
            }
            return Ok(());
        };
        let epoch = hosted.epoch();
        let meant = match env.planted.is(Bug::TakeAnyEpoch) && hosted.phase().takes_mail() {
            true => epoch,
            false => meant,
        };
        match hosted.phase() {
            Phase::Closed | Phase::Active | Phase::MovingOut(_) if epoch == meant => {
                if passed {
                    // Reported once it is known that the message did not bounce.
                    self.landing.push((message.target.clone(), message.header.call, meant));
                    env.timers.set(env.now, Due::Landing);
                }
                self.deliver(env, calls, epoch, message);
            }
            Phase::Closed | Phase::Active | Phase::MovingOut(_) if epoch > meant => {
                env.return_to_origin(message, Some((env.me, epoch)));
            }
            Phase::Activating if epoch == meant => {
                if passed {
                    report_landed(env, &message.target, message.header.call, meant);
                }
                return self.hold(env, message, false);
            }
            // `meant` is the epoch that this activation is about to get: the move is decided even if this node has not
            // learned so.
            Phase::MovingIn(incoming) if epoch < meant && incoming.released => {
                if passed {
                    report_landed(env, &message.target, message.header.call, meant);
                }
                return self.hold(env, message, false);
            }
            Phase::MovingIn(_) if epoch < meant => return self.keep(env, message, passed),
            Phase::Expected | Phase::Releasing(_) if epoch == meant => return self.keep(env, message, passed),
            Phase::Departed(departed) if departed.to_epoch > meant => {
                env.return_to_origin(message, Some((departed.to, departed.to_epoch)));
            }
            _ => env.return_to_origin(message, None),
        }
        Ok(())
    }

    /// Keeps a message from another node. Its origin must not treat it as settled just because its frame is
    /// acknowledged.
    fn keep(&mut self, env: &mut Env, message: Arc<Message>, passed: bool) -> Result<(), NoRoom> {
        if !passed && !env.planted.is(Bug::KeepSilently) {
            let (actor, call, caller) = (
                message.target.clone(),
                message.header.call,
                message.header.caller.clone(),
            );
            env.send(call.origin, Body::Kept { actor, call, caller });
        }
        self.hold(env, message, true)
    }

    /// Holds a message until the actor's fate is decided. Returns the message if too many are held.
    pub(super) fn hold(&mut self, env: &Env, message: Arc<Message>, passed: bool) -> Result<(), NoRoom> {
        let hosted = self.expect_mut(&message.target);
        if hosted.held().len() >= env.limits.held_per_actor {
            return Err(NoRoom(Full::Actor, message));
        }
        hosted.held_mut().push_back(Held { message, passed });
        Ok(())
    }

    pub(super) fn deliver(&mut self, env: &mut Env, calls: &mut Calls, epoch: ActivationEpoch, message: Arc<Message>) {
        if message.header.request.is_some() && !self.should_run(env, calls, &message) {
            return;
        }
        env.command(Command::Deliver { epoch, message });
    }

    /// Whether to run a call of a request that has reached its actor. A duplicate gets the outcome of the call that
    /// ran.
    fn should_run(&mut self, env: &mut Env, calls: &mut Calls, message: &Message) -> bool {
        if env.is_dead(message.header.call.origin) {
            // Another node delayed the call. Its caller is dead, and the record of its request has been dropped.
            return false;
        }
        match self.dedup.arrives(message, &env.limits) {
            Arrival::Runs => true,
            Arrival::Joins => false,
            Arrival::Over(outcome) => {
                calls.reply(env, message.header.call, outcome);
                false
            }
        }
    }

    /// Handles the outcome of a call that was delivered here.
    pub(in crate::node) fn on_replied(&mut self, env: &mut Env, calls: &mut Calls, call: CallId, outcome: Outcome) {
        let (call, outcome) = self.dedup.ended(call, outcome, &env.limits);
        calls.reply(env, call, outcome);
    }

    /// Reports the messages delivered before this event as landed: none of them can bounce any more.
    pub(in crate::node) fn report_landed(&mut self, env: &mut Env) {
        for (actor, call, epoch) in std::mem::take(&mut self.landing) {
            report_landed(env, &actor, call, epoch);
        }
    }

    /// Forgets a message that has bounced: it has not landed.
    pub(in crate::node) fn bounced(&mut self, bounced: CallId) {
        self.landing.retain(|(_, call, _)| *call != bounced);
    }
}

/// Reports to the origin of a message that it has its place in the actor's queue here.
pub(in crate::node) fn report_landed(env: &mut Env, actor: &ActorId, call: CallId, epoch: ActivationEpoch) {
    let actor = actor.clone();
    env.send(call.origin, Body::Landed { actor, call, epoch });
}

//! The end of a move away from this node: the directory has decided, and the queue follows the actor. `source` has the
//! sequence diagram.

use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered};

use crate::bug::Bug;
use crate::chunking::in_parts;
use crate::hosted::{Departed, Phase, Releasing};
use crate::node::Node;
use crate::node::migration::settle::SettlingMove;
use crate::timers::Due;
use crate::{Body, Command, MoveBody, MoveStep};

impl Node {
    /// Has the runtime release an activation whose move the directory has committed.
    pub(in crate::node) fn begin_release(&mut self, actor: &ActorId, to: NodeId, to_epoch: ActivationEpoch) {
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
        let epoch = hosted.epoch();
        let Phase::MovingOut(out) = hosted.phase() else {
            unreachable!("the caller checked that the actor is moving out");
        };
        let (id, attempt, deadline) = (out.id, out.attempt, out.deadline);
        let is_lost = to != out.to;
        self.moving_out.remove(actor);
        self.sessions.timers.unset(deadline, Due::Move(actor.clone()));
        self.set_phase(
            actor,
            Phase::Releasing(Box::new(Releasing {
                to,
                to_epoch,
                attempt,
                is_lost,
            })),
        );
        let result = Ok(to_epoch);
        self.sessions.command(Command::MoveEnded { id, result });
        let actor = actor.clone();
        self.sessions.command(Command::Release { actor, epoch });
    }

    /// Forwards the queue of a released activation, and the messages held since, to the new host.
    pub(in crate::node) fn on_released(
        &mut self,
        actor: ActorId,
        epoch: ActivationEpoch,
        mut queue: Vec<Arc<Message>>,
    ) {
        let Some(hosted) = self.hosted.get_mut(&actor).filter(|hosted| hosted.epoch() == epoch) else {
            return;
        };
        let Some(Phase::Releasing(releasing)) = hosted.phase_mut() else {
            return;
        };
        let (to, to_epoch, attempt) = (releasing.to, releasing.to_epoch, releasing.attempt);
        let is_lost = releasing.is_lost || self.sessions.is_dead(to) || to == self.sessions.me;
        let held = hosted.take_held();
        for message in &mut queue {
            let latest = self.requests.latest(message.header.call);
            if latest != message.header.call {
                Arc::make_mut(message).header.call = latest;
            }
            self.expect_outcome(message);
        }
        self.requests.forget_actor(&actor);
        if is_lost {
            // The new activation is lost already. Nothing in the queue has run or will, and the callers learn exactly
            // that: forwarded from here, the messages could arrive after later ones of the same senders.
            self.remove_hosted(&actor);
            for message in queue {
                self.reject(message, CallError::NotDelivered(NotDelivered::NotHere));
            }
            self.send_elsewhere(held, None);
            return;
        }
        let queue = match self.sessions.planted.is(Bug::LoseQueue) {
            true => Vec::new(),
            false => queue,
        };
        self.send_queue(&actor, epoch, attempt, to, to_epoch, queue);
        let departed = Departed {
            to,
            to_epoch,
            until: None,
        };
        self.set_phase(&actor, Phase::Departed(Box::new(departed)));
        self.route_follows(&actor, to, to_epoch);
        self.send_elsewhere(held, Some((to, to_epoch)));
        self.settling.insert(actor, SettlingMove::new(to, epoch, attempt));
    }

    fn send_queue(
        &mut self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        to: NodeId,
        to_epoch: ActivationEpoch,
        queue: Vec<Arc<Message>>,
    ) {
        for message in &queue {
            let call = message.header.call;
            let actor = actor.clone();
            self.sessions.send(call.origin, Body::PassedOn { actor, call, to });
        }
        let mut parts = in_parts(queue, self.sessions.limits.chunk_bytes, |message| message.body.len());
        if parts.is_empty() {
            // The last part marks the end, even of an empty queue.
            parts.push(Vec::new());
        }
        let mut parts = parts.into_iter().peekable();
        while let Some(queue) = parts.next() {
            let last = parts.peek().is_none();
            let body = MoveBody {
                actor: actor.clone(),
                epoch,
                attempt,
                step: MoveStep::Release { to_epoch, queue, last },
            };
            self.sessions.send(to, Body::Move(body));
        }
    }

    /// Handles the target's confirmation that it has the whole queue.
    pub(in crate::node) fn on_arrived(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        if let Some(hosted) = self.hosted.get_mut(actor)
            && hosted.epoch() == epoch
            && let Some(Phase::Departed(departed)) = hosted.phase_mut()
        {
            let until = self.sessions.now + self.sessions.limits.tombstone_for;
            departed.until = Some(until);
            self.sessions.timers.set(until, Due::Tombstone(actor.clone()));
        }
    }
}

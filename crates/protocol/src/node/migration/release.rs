//! The end of a move away from this node: the directory has decided, and the queue follows the actor. `source` has the
//! sequence diagram.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId};

use super::{Attempt, MovesOut};
use crate::bug::Bug;
use crate::node::chunking::in_parts;
use crate::node::env::{Due, Env};
use crate::node::hosting::{Departed, Held, Hosted, Hosting, Phase, Releasing};
use crate::{Body, Command, MoveStep};

/// The end of an activation that has moved away.
pub(in crate::node) struct Released {
    /// The new activation; `None` if it is lost already.
    pub(in crate::node) place: Option<(NodeId, ActivationEpoch)>,
    /// Messages of the queue that were not forwarded, because the new activation is lost. Nothing in the queue has run
    /// or will, and the callers learn exactly that: forwarded from here, the messages could arrive after later ones of
    /// the same senders.
    pub(in crate::node) rejected: Vec<Arc<Message>>,
    /// Messages held since the release began.
    pub(in crate::node) held: VecDeque<Held>,
}

impl MovesOut {
    /// Has the runtime release an activation whose move the directory has committed.
    pub(super) fn begin_release(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        actor: &ActorId,
        to: NodeId,
        to_epoch: ActivationEpoch,
    ) {
        let out = hosting.moving_out(actor).expect("the actor is moving out");
        let (id, deadline) = (out.id, out.deadline);
        let releasing = Releasing {
            to,
            to_epoch,
            attempt: out.attempt,
            is_lost: to != out.to,
        };
        self.moving.remove(actor);
        env.timers.unset(deadline, Due::Move(actor.clone()));
        hosting.set_phase(actor, Phase::Releasing(Box::new(releasing)));
        let result = Ok(to_epoch);
        env.command(Command::MoveEnded { id, result });
        let (actor, epoch) = (actor.clone(), hosting.epoch_of(actor));
        env.command(Command::Release { actor, epoch });
    }

    /// Forwards the queue of an activation that is [being released](Hosting::is_releasing) to the new host.
    pub(in crate::node) fn on_released(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        actor: &ActorId,
        epoch: ActivationEpoch,
        queue: Vec<Arc<Message>>,
    ) -> Released {
        let hosted = hosting.get_mut(actor).expect("the actor is being released");
        let Phase::Releasing(releasing) = hosted.phase() else {
            unreachable!("the actor is being released");
        };
        let (to, to_epoch, number) = (releasing.to, releasing.to_epoch, releasing.attempt);
        let is_lost = releasing.is_lost || env.is_dead(to) || to == env.me;
        let held = hosted.take_held();
        hosting.dedup().forget_actor(actor);
        if is_lost {
            hosting.remove(actor);
            return Released {
                place: None,
                rejected: queue,
                held,
            };
        }
        let queue = match env.planted.is(Bug::LoseQueue) {
            true => Vec::new(),
            false => queue,
        };
        let attempt = Attempt {
            actor: actor.clone(),
            epoch,
            number,
        };
        send_queue(env, &attempt, to, to_epoch, queue);
        let departed = Departed {
            to,
            to_epoch,
            until: None,
        };
        hosting.set_phase(actor, Phase::Departed(Box::new(departed)));
        self.settling.add(to, attempt);
        Released {
            place: Some((to, to_epoch)),
            rejected: Vec::new(),
            held,
        }
    }

    /// Handles the target's confirmation that it has the whole queue.
    pub(in crate::node) fn on_arrived(&self, env: &mut Env, hosting: &mut Hosting, attempt: &Attempt) {
        let hosted = hosting.get_mut(&attempt.actor);
        let hosted = hosted.filter(|hosted| hosted.epoch() == attempt.epoch);
        if let Some(departed) = hosted.and_then(Hosted::departed) {
            let until = env.now + env.limits.tombstone_for;
            departed.until = Some(until);
            env.timers.set(until, Due::Tombstone(attempt.actor.clone()));
        }
    }
}

fn send_queue(env: &mut Env, attempt: &Attempt, to: NodeId, to_epoch: ActivationEpoch, queue: Vec<Arc<Message>>) {
    for message in &queue {
        let (actor, call) = (attempt.actor.clone(), message.header.call);
        env.send(call.origin, Body::PassedOn { actor, call, to });
    }
    let mut parts = in_parts(queue, env.limits.chunk_bytes, |message| message.body.len());
    // The last part marks the end, even of an empty queue.
    let last = parts.pop().unwrap_or_default();
    let parts = parts.into_iter().map(|queue| (queue, false));
    for (queue, last) in parts.chain([(last, true)]) {
        env.send(to, attempt.body(MoveStep::Release { to_epoch, queue, last }));
    }
}

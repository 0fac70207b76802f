//! Moves to this node. `source` has the sequence diagram.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use elastin_types::{ActivationEpoch, ActorId, Message, NodeId};

use super::Attempt;
use crate::bug::Bug;
use crate::node::effect::Effect;
use crate::node::env::Env;
use crate::node::hosting::{FIRST_ATTEMPT_AFTER_MOVE, Held, Hosted, Hosting, InStep, MoveIn, Phase, report_landed};
use crate::node::routing::{Path, Place, Routing};
use crate::{Body, DirectoryBody, MoveError, MoveStep, MovedRequest, StateSource};

/// Moves to this node. The steps of each are in the phase of its actor.
#[derive(Debug, Default)]
pub(in crate::node) struct MovesIn {
    /// Actors moving here that are not active yet; bounded by [`Limits::moves_in`](crate::Limits).
    // INVARIANT: it contains exactly the actors in the phase `MovingIn`.
    moving: BTreeSet<ActorId>,
}

impl MovesIn {
    /// Number of moves that have not completed.
    pub(in crate::node) fn len(&self) -> usize {
        self.moving.len()
    }

    /// Handles an offer to move an actor here.
    pub(in crate::node) fn on_offer(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        routing: &Routing,
        from: NodeId,
        attempt: &Attempt,
    ) -> Option<Effect> {
        if let Err(reason) = self.may_take(env, hosting) {
            env.send(from, attempt.body(MoveStep::Refuse(reason)));
            return None;
        }
        let Attempt { actor, epoch, number } = attempt;
        let held = match hosting.get(actor).map(Hosted::phase) {
            None => VecDeque::new(),
            Some(Phase::Expected) => hosting.remove(actor),
            // An offer of an activation older than the one that left here is stale.
            Some(Phase::Departed(departed)) if departed.to_epoch <= *epoch => hosting.remove(actor),
            Some(_) => {
                let reason = MoveError::TargetUnfit;
                env.send(from, attempt.body(MoveStep::Refuse(reason)));
                return None;
            }
        };
        let incoming = MoveIn {
            from,
            attempt: *number,
            step: InStep::Settling,
            image: BytesMut::new(),
            queue: VecDeque::new(),
            released: false,
        };
        hosting.insert(actor, *epoch, Phase::MovingIn(Box::new(incoming)));
        *hosting.get_mut(actor).expect("inserted above").held_mut() = held;
        self.moving.insert(actor.clone());
        self.accept_if_clear(env, hosting, routing, actor)
    }

    fn may_take(&self, env: &Env, hosting: &Hosting) -> Result<(), MoveError> {
        if !hosting.hosts() {
            return Err(MoveError::TargetUnfit);
        }
        env.view().check_takes_actors(env.me)?;
        if self.moving.len() >= env.limits.moves_in || self.bytes_received(hosting) >= env.limits.move_bytes {
            return Err(MoveError::TooMany(env.me));
        }
        Ok(())
    }

    /// Image bytes received for actors that are not active yet.
    fn bytes_received(&self, hosting: &Hosting) -> usize {
        let moves = self.moving.iter().filter_map(|actor| hosting.moving_in(actor));
        moves.map(|incoming| incoming.image.len()).sum()
    }

    /// Accepts a pending offer for this actor if all messages of local callers are at its present host. Called whenever
    /// their path to the actor changes.
    pub(in crate::node) fn accept_if_clear(
        &self,
        env: &mut Env,
        hosting: &mut Hosting,
        routing: &Routing,
        actor: &ActorId,
    ) -> Option<Effect> {
        let hosted = hosting.get_mut(actor)?;
        let epoch = hosted.epoch();
        let incoming = hosted.moving_in()?;
        if incoming.step != InStep::Settling {
            return None;
        }
        let from = incoming.from;
        let path = routing.get(actor).map(|route| (&route.path, route.is_quiet()));
        let clear = match path {
            None => true,
            // Messages sent to the source arrive there before the acceptance does.
            Some((Path::Direct { node, epoch: known, .. }, true)) if *node == from && *known == epoch => true,
            // Called again when everything sent to the other place is accounted for.
            Some((Path::Direct { .. }, _)) => return Some(Effect::LeavePath(actor.clone(), Place::Host(from, epoch))),
            // Likewise when the message on its way through the directory has landed or was lost.
            Some((Path::Asking(_) | Path::Blocked, _)) => false,
        };
        if clear || env.planted.is(Bug::AcceptTooEarly) {
            incoming.step = InStep::Accepted;
            let attempt = Attempt {
                actor: actor.clone(),
                epoch,
                number: incoming.attempt,
            };
            env.send(from, attempt.body(MoveStep::Accept));
        }
        None
    }

    /// Takes over the actor's deduplication records.
    pub(in crate::node) fn on_requests(
        &self,
        env: &Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
        mut requests: Vec<MovedRequest>,
    ) {
        requests.retain(|moved| !env.is_dead(moved.id.origin));
        if move_in_of(hosting, attempt).is_some() {
            hosting.dedup().take_over(&attempt.actor, requests, &env.limits);
        }
    }

    /// Handles a chunk of the image.
    pub(in crate::node) fn on_stage(
        &self,
        env: &mut Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
        chunk: &Bytes,
        last: bool,
    ) {
        let Some(incoming) = move_in_of(hosting, attempt) else {
            return;
        };
        if incoming.step != InStep::Accepted {
            return;
        }
        incoming.image.extend_from_slice(chunk);
        if last {
            incoming.step = InStep::Committing;
            ask_to_commit(env, hosting, &attempt.actor);
        } else {
            // The source sends the next chunk when this one is acknowledged.
            env.acknowledge_promptly(incoming.from);
        }
    }

    /// Handles the directory's decision on the target's side.
    pub(in crate::node) fn on_decided(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
        node: NodeId,
        now: ActivationEpoch,
    ) -> Option<Effect> {
        let incoming = move_in_of(hosting, attempt)?;
        if incoming.step != InStep::Committing {
            return None;
        }
        if node != env.me || now <= attempt.epoch {
            return Some(self.drop_move(hosting, &attempt.actor));
        }
        incoming.step = InStep::Committed(now);
        let is_lost = env.is_dead(incoming.from);
        is_lost.then(|| self.arrive(env, hosting, &attempt.actor, now))
    }

    /// Handles the source's cancellation.
    pub(in crate::node) fn on_cancel(&mut self, hosting: &mut Hosting, attempt: &Attempt) -> Option<Effect> {
        move_in_of(hosting, attempt)?;
        Some(self.drop_move(hosting, &attempt.actor))
    }

    /// Drops a move to this node. The messages held for the actor are routed elsewhere.
    pub(in crate::node) fn drop_move(&mut self, hosting: &mut Hosting, actor: &ActorId) -> Effect {
        self.moving.remove(actor);
        hosting.drop_actor(actor)
    }

    /// Handles a part of the queue, which also proves that the move is decided.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one frame")]
    pub(in crate::node) fn on_release(
        &self,
        env: &mut Env,
        hosting: &mut Hosting,
        from: NodeId,
        attempt: &Attempt,
        to_epoch: ActivationEpoch,
        queue: Vec<Arc<Message>>,
        last: bool,
    ) {
        let actor = &attempt.actor;
        let Some(incoming) = move_in_of(hosting, attempt) else {
            // Only possible if this node gave up on a source that it considered dead; these messages are lost with it.
            return;
        };
        if incoming.from != from || !matches!(incoming.step, InStep::Committing | InStep::Committed(_)) {
            return;
        }
        incoming.step = InStep::Committed(to_epoch);
        incoming.queue.extend(queue.iter().cloned());
        incoming.released = last;
        for message in &queue {
            let call = message.header.call;
            report_landed(env, actor, call, to_epoch);
            if !env.is_dead(call.origin) {
                hosting.dedup().take_over_queued(message);
            }
        }
        if last {
            env.send(from, attempt.body(MoveStep::Arrived));
            hosting.queue_arrived(env, actor, to_epoch);
        }
    }

    /// Handles the report that all messages sent by the actor from its old host have settled: the actor may run.
    pub(in crate::node) fn on_settled(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
    ) -> Option<Effect> {
        let incoming = move_in_of(hosting, attempt)?;
        match incoming.step {
            InStep::Committed(to_epoch) if incoming.released => {
                Some(self.arrive(env, hosting, &attempt.actor, to_epoch))
            }
            _ => None,
        }
    }

    /// Activates the actor. The transferred queue precedes messages that were sent directly to this node.
    fn arrive(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId, epoch: ActivationEpoch) -> Effect {
        self.moving.remove(actor);
        let hosted = hosting.get_mut(actor).expect("the actor is moving in");
        let incoming = hosted.moving_in().expect("the actor is moving in");
        let image = std::mem::take(&mut incoming.image).freeze();
        let queue = std::mem::take(&mut incoming.queue);
        let queue = queue.into_iter().map(|message| Held { message, passed: false });
        match env.planted.is(Bug::QueueLast) {
            true => hosted.held_mut().extend(queue),
            false => queue.rev().for_each(|held| hosted.held_mut().push_front(held)),
        }
        hosted.set_epoch(epoch);
        hosted.set_attempts(FIRST_ATTEMPT_AFTER_MOVE);
        let source = match env.planted.is(Bug::ForgetState) {
            true => StateSource::Fresh,
            false => StateSource::Staged(image),
        };
        hosting.activate(env, actor.clone(), source)
    }

    /// The actors that are moving here.
    pub(in crate::node) fn actors(&self) -> Vec<ActorId> {
        self.moving.iter().cloned().collect()
    }

    /// Handles the death of the source of a move, if it is this node. A commit request sent before still gets an answer:
    /// the image is complete, and no other node has a newer one.
    pub(in crate::node) fn on_death(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        node: NodeId,
        actor: &ActorId,
    ) -> Option<Effect> {
        let incoming = hosting.moving_in(actor).filter(|incoming| incoming.from == node)?;
        match incoming.step {
            InStep::Settling | InStep::Accepted => Some(self.drop_move(hosting, actor)),
            InStep::Committing => None,
            InStep::Committed(epoch) => Some(self.arrive(env, hosting, actor, epoch)),
        }
    }

    /// Repeats unanswered commit requests to the new slot owners.
    pub(in crate::node) fn follow_owners(&self, env: &mut Env, hosting: &Hosting, changed: impl Fn(&ActorId) -> bool) {
        for actor in self.moving.iter().filter(|actor| changed(actor)) {
            let incoming = hosting.moving_in(actor);
            if incoming.is_some_and(|incoming| incoming.step == InStep::Committing) {
                ask_to_commit(env, hosting, actor);
            }
        }
    }
}

/// The move that a frame is about, unless the frame is stale.
fn move_in_of<'a>(hosting: &'a mut Hosting, attempt: &Attempt) -> Option<&'a mut MoveIn> {
    let hosted = hosting.get_mut(&attempt.actor);
    let hosted = hosted.filter(|hosted| hosted.epoch() == attempt.epoch)?;
    hosted.moving_in().filter(|incoming| incoming.attempt == attempt.number)
}

fn ask_to_commit(env: &mut Env, hosting: &Hosting, actor: &ActorId) {
    let incoming = hosting.moving_in(actor).expect("the actor is moving in");
    let body = DirectoryBody::Commit {
        actor: actor.clone(),
        from: incoming.from,
        epoch: hosting.epoch_of(actor),
        attempt: incoming.attempt,
    };
    env.send(env.directory_of(actor), Body::Directory(body));
}

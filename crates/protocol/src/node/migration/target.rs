//! Moves to this node. `source` has the sequence diagram.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use elastin_types::{ActivationEpoch, ActorId, Message, NodeId};

use crate::bug::Bug;
use crate::hosted::{FIRST_ATTEMPT_AFTER_MOVE, Held, Hosted, InStep, MoveIn, Phase};
use crate::node::Node;
use crate::route::{Path, Place};
use crate::{Body, DirectoryBody, MoveBody, MoveError, MoveStep, MovedRequest, StateSource};

impl Node {
    /// Handles a step from the other side of a move.
    pub(in crate::node) fn on_move_body(&mut self, from: NodeId, body: MoveBody) {
        let MoveBody {
            actor,
            epoch,
            attempt,
            step,
        } = body;
        match step {
            MoveStep::Offer => self.on_offer(from, actor, epoch, attempt),
            MoveStep::Accept => self.on_accept(from, actor, epoch, attempt),
            MoveStep::Refuse(reason) => self.on_refuse(&actor, epoch, attempt, reason),
            MoveStep::Requests(requests) => self.on_requests(&actor, epoch, attempt, requests),
            MoveStep::Stage { chunk, last } => self.on_stage(&actor, epoch, attempt, chunk, last),
            MoveStep::Cancel => self.on_cancel(&actor, epoch, attempt),
            MoveStep::Release { to_epoch, queue, last } => {
                self.on_release(from, &actor, epoch, attempt, to_epoch, queue, last);
            }
            MoveStep::Settled => self.on_settled(&actor, epoch, attempt),
            MoveStep::Arrived => self.on_arrived(&actor, epoch),
        }
    }

    /// Handles an offer to move an actor here.
    fn on_offer(&mut self, from: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32) {
        if let Err(reason) = self.may_take() {
            let step = MoveStep::Refuse(reason);
            return self.send_to_source(from, actor, epoch, attempt, step);
        }
        let held = match self.hosted.get(&actor).map(Hosted::phase) {
            None => VecDeque::new(),
            Some(Phase::Expected) => self.remove_hosted(&actor),
            // An offer of an activation older than the one that left here is stale.
            Some(Phase::Departed(departed)) if departed.to_epoch <= epoch => self.remove_hosted(&actor),
            Some(_) => {
                let step = MoveStep::Refuse(MoveError::TargetUnfit);
                return self.send_to_source(from, actor, epoch, attempt, step);
            }
        };
        let incoming = MoveIn {
            from,
            attempt,
            step: InStep::Settling,
            image: BytesMut::new(),
            queue: VecDeque::new(),
            released: false,
        };
        self.insert_hosted(actor.clone(), epoch, Phase::MovingIn(Box::new(incoming)));
        *self.hosted.get_mut(&actor).expect("inserted above").held_mut() = held;
        self.moving_in.insert(actor.clone());
        self.own_messages_settled(&actor);
    }

    fn may_take(&self) -> Result<(), MoveError> {
        if !self.hosts {
            return Err(MoveError::TargetUnfit);
        }
        self.sessions.view().check_takes_actors(self.sessions.me)?;
        let limits = &self.sessions.limits;
        if self.moving_in.len() >= limits.moves_in || self.bytes_moving_in() >= limits.move_bytes {
            return Err(MoveError::TooMany(self.sessions.me));
        }
        Ok(())
    }

    fn send_to_source(&mut self, to: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32, step: MoveStep) {
        let body = MoveBody {
            actor,
            epoch,
            attempt,
            step,
        };
        self.sessions.send(to, Body::Move(body));
    }

    /// Accepts a pending offer for this actor if all messages of local callers are at its present host. Called whenever
    /// their path to the actor changes.
    pub(in crate::node) fn own_messages_settled(&mut self, actor: &ActorId) {
        let Some(hosted) = self.hosted.get_mut(actor) else {
            return;
        };
        let epoch = hosted.epoch();
        let Some(Phase::MovingIn(incoming)) = hosted.phase_mut() else {
            return;
        };
        if incoming.step != InStep::Settling {
            return;
        }
        let (from, attempt) = (incoming.from, incoming.attempt);
        let path = self.routes.get(actor).map(|route| (&route.path, route.is_quiet()));
        let clear = match path {
            None => true,
            // Messages sent to the source arrive there before the acceptance does.
            Some((Path::Direct { node, epoch: known, .. }, true)) if *node == from && *known == epoch => true,
            // Called again when everything sent to the other place is accounted for.
            Some((Path::Direct { .. }, _)) => return self.leave_path(actor, Place::Host(from, epoch)),
            // Likewise when the message on its way through the directory has landed or was lost.
            Some((Path::Asking(_) | Path::Blocked, _)) => false,
        };
        let clear = clear || self.sessions.planted.is(Bug::AcceptTooEarly);
        if clear {
            incoming.step = InStep::Accepted;
            self.send_to_source(from, actor.clone(), epoch, attempt, MoveStep::Accept);
        }
    }

    fn move_in_of(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32) -> Option<&mut MoveIn> {
        let hosted = self.hosted.get_mut(actor).filter(|hosted| hosted.epoch() == epoch)?;
        match hosted.phase_mut()? {
            Phase::MovingIn(incoming) if incoming.attempt == attempt => Some(incoming),
            _ => None,
        }
    }

    /// Takes over the actor's deduplication records.
    fn on_requests(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32, mut requests: Vec<MovedRequest>) {
        requests.retain(|moved| !self.sessions.is_dead(moved.id.origin));
        if self.move_in_of(actor, epoch, attempt).is_some() {
            self.requests.take_over(actor, requests, &self.sessions.limits);
        }
    }

    /// Handles a chunk of the image.
    fn on_stage(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32, chunk: Bytes, last: bool) {
        let Some(incoming) = self.move_in_of(actor, epoch, attempt) else {
            return;
        };
        if incoming.step != InStep::Accepted {
            return;
        }
        incoming.image.extend_from_slice(&chunk);
        if last {
            incoming.step = InStep::Committing;
            self.ask_to_commit(actor);
        } else {
            // The source sends the next chunk when this one is acknowledged.
            let from = incoming.from;
            self.sessions.acknowledge_promptly(from);
        }
    }

    fn ask_to_commit(&mut self, actor: &ActorId) {
        let hosted = &self.hosted[actor];
        if let Phase::MovingIn(incoming) = hosted.phase() {
            let body = DirectoryBody::Commit {
                actor: actor.clone(),
                from: incoming.from,
                epoch: hosted.epoch(),
                attempt: incoming.attempt,
            };
            self.sessions
                .send(self.sessions.directory_of(actor), Body::Directory(body));
        }
    }

    /// Handles the directory's decision on the target's side.
    pub(in crate::node) fn on_decided_in(
        &mut self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        node: NodeId,
        now: ActivationEpoch,
    ) {
        let me = self.sessions.me;
        let Some(incoming) = self.move_in_of(actor, epoch, attempt) else {
            return;
        };
        if incoming.step != InStep::Committing {
            return;
        }
        if node == me && now > epoch {
            incoming.step = InStep::Committed(now);
            let from = incoming.from;
            if self.sessions.is_dead(from) {
                self.arrive(actor, now);
            }
        } else {
            self.drop_move_in(actor);
        }
    }

    /// Handles the source's cancellation.
    fn on_cancel(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32) {
        if self.move_in_of(actor, epoch, attempt).is_some() {
            self.drop_move_in(actor);
        }
    }

    /// Drops a move to this node, and routes the messages held for the actor elsewhere.
    pub(in crate::node) fn drop_move_in(&mut self, actor: &ActorId) {
        self.moving_in.remove(actor);
        self.requests.forget_actor(actor);
        let held = self.remove_hosted(actor);
        self.send_elsewhere(held, None);
    }

    /// Handles a part of the queue, which also proves that the move is decided.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one frame")]
    fn on_release(
        &mut self,
        from: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        to_epoch: ActivationEpoch,
        queue: Vec<Arc<Message>>,
        last: bool,
    ) {
        let Some(incoming) = self.move_in_of(actor, epoch, attempt) else {
            // Only possible if this node gave up on a source that it considered dead; these messages are lost with it.
            return;
        };
        if incoming.from != from || !matches!(incoming.step, InStep::Committing | InStep::Committed(_)) {
            return;
        }
        incoming.step = InStep::Committed(to_epoch);
        for message in &queue {
            let (actor, call, epoch) = (actor.clone(), message.header.call, to_epoch);
            self.sessions.send(call.origin, Body::Landed { actor, call, epoch });
            if !self.sessions.is_dead(call.origin) {
                self.requests.take_over_queued(message);
            }
        }
        if let Some(incoming) = self.move_in_of(actor, epoch, attempt) {
            incoming.queue.extend(queue);
            incoming.released = last;
        }
        if last {
            self.send_to_source(from, actor.clone(), epoch, attempt, MoveStep::Arrived);
            self.limbo.remove(actor);
            self.report_held_landed(actor, to_epoch);
        }
    }

    /// Handles the report that all messages sent by the actor from its old host have settled: the actor may run.
    fn on_settled(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32) {
        if let Some(incoming) = self.move_in_of(actor, epoch, attempt)
            && incoming.released
            && let InStep::Committed(to_epoch) = incoming.step
        {
            self.arrive(actor, to_epoch);
        }
    }

    /// Activates the actor. The transferred queue precedes messages that were sent directly to this node.
    fn arrive(&mut self, actor: &ActorId, epoch: ActivationEpoch) {
        self.moving_in.remove(actor);
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
        let Some(Phase::MovingIn(incoming)) = hosted.phase_mut() else {
            unreachable!("the caller checked that the actor is moving in");
        };
        let image = std::mem::take(&mut incoming.image).freeze();
        let queue = std::mem::take(&mut incoming.queue);
        let queue = queue.into_iter().map(|message| Held { message, passed: false });
        match self.sessions.planted.is(Bug::QueueLast) {
            true => hosted.held_mut().extend(queue),
            false => queue.rev().for_each(|held| hosted.held_mut().push_front(held)),
        }
        hosted.set_epoch(epoch);
        hosted.set_attempts(FIRST_ATTEMPT_AFTER_MOVE);
        let source = match self.sessions.planted.is(Bug::ForgetState) {
            true => StateSource::Fresh,
            false => StateSource::Staged(image),
        };
        self.activate(actor.clone(), source);
    }

    /// Handles the death of a source. A commit request sent before still gets an answer: the image is complete, and no
    /// other node has a newer one.
    pub(in crate::node) fn moves_in_lost_with(&mut self, node: NodeId) {
        let concerned: BTreeSet<ActorId> = self.moving_in.clone();
        for actor in concerned {
            let Phase::MovingIn(incoming) = self.hosted[&actor].phase() else {
                continue;
            };
            if incoming.from != node {
                continue;
            }
            match incoming.step {
                InStep::Settling | InStep::Accepted => self.drop_move_in(&actor),
                InStep::Committing => {}
                InStep::Committed(epoch) => self.arrive(&actor, epoch),
            }
        }
    }

    /// Repeats unanswered commit requests to the new slot owners.
    pub(in crate::node) fn moves_in_follow_owners(&mut self, changed: impl Fn(&ActorId) -> bool) {
        let concerned: Vec<ActorId> = self.moving_in.iter().filter(|actor| changed(actor)).cloned().collect();
        for actor in concerned {
            if matches!(self.hosted[&actor].phase(), Phase::MovingIn(incoming) if incoming.step == InStep::Committing) {
                self.ask_to_commit(&actor);
            }
        }
    }
}

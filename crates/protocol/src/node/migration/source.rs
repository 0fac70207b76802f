//! Moves away from this node.
//!
//! ```text
//!   source                      target                      directory
//!     │ Offer ──────────────────► │
//!     │ ◄─────────────────Accept  │    (messages of the target's callers have reached the source)
//!   freeze                        │
//!     │ Stage … Stage(last) ────► │ Commit ─────────────────► │
//!     │ ◄───────────────────────────────────────────Decided  │
//!   release (queue)               │ ◄───────────────Decided  │
//!     │ Release … (last) ───────► │
//!   tombstone                   activate, deliver the queue, open
//!     │ ◄────────────────Arrived  │
//! ```
//!
//! Until the last chunk of the image has left, the source can abort the move by itself. After that only the directory
//! can. The source then asks the directory and stays frozen until the answer, which decides whether it resumes or
//! releases.

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

use crate::bug::Bug;
use crate::hosted::{Hosted, MoveOut, OutStep, Phase};
use crate::node::Node;
use crate::timers::Due;
use crate::{Body, Command, DirectoryBody, MoveBody, MoveError, MoveId, MoveStep, PlannedMove};

/// Chunks of an image in flight at once: enough to keep a connection busy, few enough that calls get through.
const CHUNKS_UNDER_WAY: usize = 2;
/// An image this many times larger than one chunk takes long to send. Its chunks are half as large, so that calls wait
/// less behind each; shorter images are better finished quickly.
const LONG_IMAGE: usize = 8;
/// Bound on the starts of a queued move before its target's refusal counts. With [`Limits::moves_in`](crate::Limits)
/// moves at a time, even the last actor of a large server starts much earlier.
const TRIES_MAX: u32 = 100_000;

impl Node {
    /// Handles a request to move an actor.
    pub(in crate::node) fn on_move(&mut self, id: MoveId, actor: ActorId, to: NodeId) {
        if let Err(error) = self.begin_move(id, &actor, to, None) {
            self.sessions.command(Command::MoveEnded { id, result: Err(error) });
        }
    }

    pub(in crate::node) fn begin_move(
        &mut self,
        id: MoveId,
        actor: &ActorId,
        to: NodeId,
        tries: Option<u32>,
    ) -> Result<(), MoveError> {
        let hosted = self.hosted.get_mut(actor).ok_or(MoveError::NotHere)?;
        match hosted.phase() {
            Phase::Active => {}
            Phase::MovingOut(_) | Phase::Releasing(_) => return Err(MoveError::AlreadyMoving),
            _ => return Err(MoveError::NotHere),
        }
        if to == self.sessions.me {
            return Err(MoveError::AlreadyThere);
        }
        self.sessions.view().check_takes_actors(to)?;
        if self.moving_out.len() >= self.sessions.limits.moves_out {
            return Err(MoveError::TooMany(self.sessions.me));
        }
        let attempt = hosted.attempts();
        hosted.set_attempts(attempt + 1);
        let deadline = self.sessions.now + self.sessions.limits.move_deadline;
        let step = OutStep::Offered;
        let out = MoveOut {
            id,
            to,
            attempt,
            deadline,
            step,
            group: None,
            tries,
            image_bytes: 0,
            pauses_until: Time::ZERO,
        };
        hosted.set_phase(Phase::MovingOut(Box::new(out)));
        self.moving_out.insert(actor.clone());
        self.sessions.timers.set(deadline, Due::Move(actor.clone()));
        self.send_to_target(actor, MoveStep::Offer);
        Ok(())
    }

    /// Sends a step of an undecided move to its target.
    pub(in crate::node) fn send_to_target(&mut self, actor: &ActorId, step: MoveStep) -> u64 {
        let hosted = &self.hosted[actor];
        let Phase::MovingOut(out) = hosted.phase() else {
            unreachable!("the caller checked that the actor is moving out");
        };
        let body = MoveBody {
            actor: actor.clone(),
            epoch: hosted.epoch(),
            attempt: out.attempt,
            step,
        };
        self.sessions.send(out.to, Body::Move(body))
    }

    /// Handles the target's acceptance.
    pub(in crate::node) fn on_accept(&mut self, from: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32) {
        let Some(out) = self.move_out_of(&actor, epoch, attempt) else {
            return;
        };
        if out.to == from && matches!(out.step, OutStep::Offered) {
            out.step = OutStep::Taken;
            match out.group {
                Some(group) => self.freeze_group(group),
                None => self.freeze(&actor),
            }
        }
    }

    /// Has the runtime freeze an actor that its target has accepted.
    pub(in crate::node) fn freeze(&mut self, actor: &ActorId) {
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
        let epoch = hosted.epoch();
        let Some(Phase::MovingOut(out)) = hosted.phase_mut() else {
            unreachable!("the caller checked that the actor is moving out");
        };
        out.step = OutStep::Freezing(None);
        let actor = actor.clone();
        let deadline = out
            .deadline
            .min(self.sessions.now + self.sessions.limits.freeze_deadline);
        self.sessions.command(Command::Freeze { actor, epoch, deadline });
    }

    /// Handles the target's refusal.
    pub(in crate::node) fn on_refuse(
        &mut self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        reason: MoveError,
    ) {
        if let Some(out) = self.move_out_of(actor, epoch, attempt)
            && matches!(out.step, OutStep::Offered)
        {
            if let Some(group) = out.group.take() {
                self.move_failed(actor, reason);
                return self.group_fails(group, reason);
            }
            let again = out.tries.map(|tries| (out.id, out.to, tries));
            match (reason, again) {
                (MoveError::TooMany(_), Some((id, to, tries))) if tries < TRIES_MAX => {
                    self.end_move_out(actor);
                    self.requeue_move(
                        PlannedMove {
                            id,
                            actor: actor.clone(),
                            to,
                        },
                        tries,
                    );
                }
                _ => self.move_failed(actor, reason),
            }
        }
    }

    fn move_out_of(&mut self, actor: &ActorId, epoch: ActivationEpoch, attempt: u32) -> Option<&mut MoveOut> {
        let hosted = self.hosted.get_mut(actor).filter(|hosted| hosted.epoch() == epoch)?;
        match hosted.phase_mut()? {
            Phase::MovingOut(out) if out.attempt == attempt => Some(out),
            _ => None,
        }
    }

    /// Ends a failed move: the actor stays and everything is as before.
    pub(in crate::node) fn move_failed(&mut self, actor: &ActorId, reason: MoveError) {
        let (id, result) = (self.end_move_out(actor), Err(reason));
        self.sessions.command(Command::MoveEnded { id, result });
    }

    /// Makes the actor active here again and forgets its move.
    fn end_move_out(&mut self, actor: &ActorId) -> MoveId {
        let hosted = self
            .hosted
            .get_mut(actor)
            .expect("the caller checked that it is hosted");
        let Phase::MovingOut(out) = hosted.set_phase(Phase::Active) else {
            unreachable!("the caller checked that the actor is moving out");
        };
        self.moving_out.remove(actor);
        self.requests.move_cancelled(actor);
        self.sessions.timers.unset(out.deadline, Due::Move(actor.clone()));
        out.id
    }

    /// Aborts a move that the directory cannot have decided, and resumes the actor.
    pub(in crate::node) fn call_off(&mut self, actor: &ActorId, frozen: bool, reason: MoveError) {
        self.send_to_target(actor, MoveStep::Cancel);
        self.move_failed(actor, reason);
        if frozen && !self.sessions.planted.is(Bug::StayFrozen) {
            let (actor, epoch) = (actor.clone(), self.hosted[actor].epoch());
            self.sessions.command(Command::Resume { actor, epoch });
        }
    }

    /// Handles the runtime's answer to `Freeze`: the actor stopped at a turn boundary, or could not be frozen.
    pub(in crate::node) fn on_frozen(&mut self, actor: ActorId, epoch: ActivationEpoch, image: Option<Bytes>) {
        let Some(hosted) = self.hosted.get_mut(&actor).filter(|hosted| hosted.epoch() == epoch) else {
            return;
        };
        let Some(Phase::MovingOut(out)) = hosted.phase_mut() else {
            return;
        };
        let OutStep::Freezing(given_up) = out.step else {
            return;
        };
        let group = out.group;
        match (image, given_up) {
            (None, reason) => {
                let reason = reason.unwrap_or(MoveError::NotFrozen);
                out.group = None;
                self.call_off(&actor, false, reason);
                self.group_fails_if_any(group, reason);
            }
            (Some(_), Some(reason)) => self.call_off(&actor, true, reason),
            (Some(image), None) => {
                out.image_bytes = image.len();
                out.step = OutStep::Frozen(image);
                match group {
                    Some(group) => self.stage_group(group),
                    None => self.begin_staging(&actor),
                }
            }
        }
    }

    /// Begins to send the image of a frozen actor.
    pub(in crate::node) fn begin_staging(&mut self, actor: &ActorId) {
        let Some(Phase::MovingOut(out)) = self.hosted.get_mut(actor).and_then(Hosted::phase_mut) else {
            unreachable!("the caller checked that the actor is moving out");
        };
        let OutStep::Frozen(image) = &mut out.step else {
            unreachable!("the caller checked that the actor is frozen");
        };
        let (image, under_way) = (std::mem::take(image), Default::default());
        out.step = OutStep::Staging { image, under_way };
        self.request_settling_acknowledgements();
        self.stage_requests(actor);
        self.stage(actor);
    }

    /// Sends as many chunks of the image as may be in flight.
    pub(in crate::node) fn stage(&mut self, actor: &ActorId) {
        let limits = &self.sessions.limits;
        let (now, burst_bytes, pause) = (self.sessions.now, limits.burst_bytes, limits.stage_pause);
        let (move_deadline, chunk_bytes) = (limits.move_deadline, limits.chunk_bytes);
        loop {
            let Some(Phase::MovingOut(out)) = self.hosted.get_mut(actor).and_then(Hosted::phase_mut) else {
                return;
            };
            let OutStep::Staging { image, under_way } = &mut out.step else {
                return;
            };
            let acknowledged = self.sessions.acknowledged(out.to);
            while under_way.front().is_some_and(|number| *number <= acknowledged) {
                under_way.pop_front();
            }
            if out.image_bytes > burst_bytes {
                if under_way.len() >= CHUNKS_UNDER_WAY {
                    self.stages_waiting.entry(out.to).or_default().insert(actor.clone());
                    return;
                }
                if now < out.pauses_until {
                    self.sessions.timers.set(out.pauses_until, Due::Stage(actor.clone()));
                    return;
                }
                // In the second half of its time a move no longer yields to calls.
                let has_time = now + move_deadline / 2 < out.deadline;
                if has_time && self.sessions.carries_calls(out.to) {
                    out.pauses_until = now + pause;
                }
            }
            let part_bytes = match out.image_bytes > LONG_IMAGE * burst_bytes {
                true => chunk_bytes.div_ceil(2),
                false => chunk_bytes,
            };
            let chunk = image.split_to(image.len().min(part_bytes));
            let last = image.is_empty();
            if last {
                out.step = OutStep::Deciding;
            }
            let number = self.send_to_target(actor, MoveStep::Stage { chunk, last });
            if let Some(Phase::MovingOut(out)) = self.hosted.get_mut(actor).and_then(Hosted::phase_mut)
                && let OutStep::Staging { under_way, .. } = &mut out.step
            {
                under_way.push_back(number);
            }
        }
    }

    /// Resumes the image transfers that waited for acknowledgements of this peer.
    pub(in crate::node) fn resume_staging(&mut self, peer: NodeId) {
        for actor in self.stages_waiting.remove(&peer).unwrap_or_default() {
            self.stage(&actor);
        }
    }

    /// Handles the deadline of a move.
    pub(in crate::node) fn on_move_deadline(&mut self, actor: &ActorId, at: Time) {
        let Some(Phase::MovingOut(out)) = self.hosted.get(actor).map(Hosted::phase) else {
            return;
        };
        if out.deadline == at {
            self.give_up_move(actor, MoveError::DeadlineExceeded);
        }
    }

    /// Gives up a move: aborts it locally if possible, otherwise through the directory.
    fn give_up_move(&mut self, actor: &ActorId, reason: MoveError) {
        let Some(Phase::MovingOut(out)) = self.hosted.get_mut(actor).and_then(Hosted::phase_mut) else {
            return;
        };
        if let Some(group) = out.group {
            return self.group_fails(group, reason);
        }
        match &mut out.step {
            OutStep::Offered | OutStep::Taken => self.call_off(actor, false, reason),
            OutStep::Freezing(given_up) => {
                given_up.get_or_insert(reason);
            }
            OutStep::Frozen(_) | OutStep::Staging { .. } => self.call_off(actor, true, reason),
            OutStep::Deciding if self.sessions.planted.is(Bug::ResumeUndecided) => self.call_off(actor, true, reason),
            OutStep::Deciding => {
                out.step = OutStep::Aborting(reason);
                self.ask_to_abort(actor);
            }
            OutStep::Aborting(_) => {}
        }
    }

    fn ask_to_abort(&mut self, actor: &ActorId) {
        let hosted = &self.hosted[actor];
        if let Phase::MovingOut(out) = hosted.phase() {
            let body = DirectoryBody::Abort {
                actor: actor.clone(),
                epoch: hosted.epoch(),
                attempt: out.attempt,
            };
            self.sessions
                .send(self.sessions.directory_of(actor), Body::Directory(body));
        }
    }

    /// Handles the end of an activation that was to be moved.
    pub(in crate::node) fn move_out_ended_by_itself(&mut self, actor: &ActorId) {
        if let Some(Phase::MovingOut(out)) = self.hosted.get_mut(actor).and_then(Hosted::phase_mut) {
            let group = out.group.take();
            self.call_off(actor, false, MoveError::Ended);
            self.group_fails_if_any(group, MoveError::Ended);
        }
    }

    /// Handles the directory's decision on the source's side.
    pub(in crate::node) fn on_decided_out(
        &mut self,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        node: NodeId,
        now: ActivationEpoch,
    ) {
        let Some(out) = self.move_out_of(actor, epoch, attempt) else {
            return;
        };
        match out.step {
            OutStep::Deciding | OutStep::Aborting(_) if now > epoch => self.begin_release(actor, node, now),
            OutStep::Aborting(reason) => self.call_off(actor, true, reason),
            _ => {}
        }
    }

    /// Handles the death of a target.
    pub(in crate::node) fn moves_out_lost_with(&mut self, node: NodeId) {
        self.stages_waiting.remove(&node);
        self.settling.retain(|_, settling| !settling.goes_to(node));
        let undecided: Vec<ActorId> = self.moving_out.iter().cloned().collect();
        for actor in undecided {
            if matches!(self.hosted[&actor].phase(), Phase::MovingOut(out) if out.to == node) {
                self.give_up_move(&actor, MoveError::TargetLost);
            }
        }
        let went_there = |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.to == node);
        self.hosted.retain(|hosted| !went_there(hosted));
    }

    /// Repeats unanswered abort requests to the new slot owners.
    pub(in crate::node) fn moves_out_follow_owners(&mut self, changed: impl Fn(&ActorId) -> bool) {
        let concerned: Vec<ActorId> = self.moving_out.iter().filter(|actor| changed(actor)).cloned().collect();
        for actor in concerned {
            if matches!(self.hosted[&actor].phase(), Phase::MovingOut(out) if matches!(out.step, OutStep::Aborting(_)))
            {
                self.ask_to_abort(&actor);
            }
        }
    }
}

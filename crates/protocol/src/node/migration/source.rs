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

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

use super::Attempt;
use super::queue::MoveQueue;
use super::settle::Settling;
use super::stage::freeze;
use crate::bug::Bug;
use crate::node::env::{Due, Env};
use crate::node::hosting::{Hosting, MoveOut, OutStep, Phase};
use crate::{Body, Command, DirectoryBody, MoveError, MoveId, MoveStep, PlannedMove};

/// Bound on the starts of a queued move before its target's refusal counts. With [`Limits::moves_in`](crate::Limits)
/// moves at a time, even the last actor of a large server starts much earlier.
const TRIES_MAX: u32 = 100_000;

/// Moves away from this node. The steps of each are in the phase of its actor.
#[derive(Debug, Default)]
pub(in crate::node) struct MovesOut {
    /// Actors moving away whose move is undecided; bounded by [`Limits::moves_out`](crate::Limits).
    // INVARIANT: it contains exactly the actors in the phase `MovingOut`.
    pub(super) moving: BTreeSet<ActorId>,
    /// Groups that move away together and are not fully frozen yet, keyed by the first move of each.
    pub(super) groups: BTreeMap<MoveId, Vec<ActorId>>,
    /// Actors whose image transfer resumes when this peer acknowledges a frame.
    pub(super) stages_waiting: BTreeMap<NodeId, BTreeSet<ActorId>>,
    /// Moves that wait to begin.
    pub(super) queue: MoveQueue,
    /// Actors that moved away and may not run yet.
    pub(in crate::node) settling: Settling,
}

impl MovesOut {
    /// Number of undecided moves.
    pub(in crate::node) fn undecided(&self) -> usize {
        self.moving.len()
    }

    /// Number of moves that wait to begin.
    pub(in crate::node) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Handles a request to move an actor.
    pub(in crate::node) fn on_move(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        PlannedMove { id, actor, to }: PlannedMove,
    ) {
        if let Err(error) = self.begin(env, hosting, id, &actor, to, None) {
            env.command(Command::MoveEnded { id, result: Err(error) });
        }
    }

    pub(super) fn begin(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        id: MoveId,
        actor: &ActorId,
        to: NodeId,
        tries: Option<u32>,
    ) -> Result<(), MoveError> {
        let hosted = hosting.get_mut(actor).ok_or(MoveError::NotHere)?;
        match hosted.phase() {
            Phase::Active => {}
            Phase::MovingOut(_) | Phase::Releasing(_) => return Err(MoveError::AlreadyMoving),
            _ => return Err(MoveError::NotHere),
        }
        if to == env.me {
            return Err(MoveError::AlreadyThere);
        }
        env.view().check_takes_actors(to)?;
        if self.moving.len() >= env.limits.moves_out {
            return Err(MoveError::TooMany(env.me));
        }
        let attempt = hosted.attempts();
        hosted.set_attempts(attempt + 1);
        let deadline = env.now + env.limits.move_deadline;
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
        hosting.set_phase(actor, Phase::MovingOut(Box::new(out)));
        self.moving.insert(actor.clone());
        env.timers.set(deadline, Due::Move(actor.clone()));
        send_to_target(env, hosting, actor, MoveStep::Offer);
        Ok(())
    }

    /// Handles the target's acceptance.
    pub(in crate::node) fn on_accept(&mut self, env: &mut Env, hosting: &mut Hosting, from: NodeId, attempt: &Attempt) {
        let Some(out) = move_out_of(hosting, attempt) else {
            return;
        };
        if out.to == from && matches!(out.step, OutStep::Offered) {
            out.step = OutStep::Taken;
            match out.group {
                Some(group) => self.freeze_group(env, hosting, group),
                None => freeze(env, hosting, &attempt.actor),
            }
        }
    }

    /// Handles the target's refusal.
    pub(in crate::node) fn on_refuse(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
        reason: MoveError,
    ) {
        let Some(out) = move_out_of(hosting, attempt) else {
            return;
        };
        if !matches!(out.step, OutStep::Offered) {
            return;
        }
        let actor = attempt.actor.clone();
        if let Some(group) = out.group.take() {
            self.fail(env, hosting, &actor, reason);
            return self.group_fails(env, hosting, group, reason);
        }
        let again = out.tries.map(|tries| (out.id, out.to, tries));
        match (reason, again) {
            (MoveError::TooMany(_), Some((id, to, tries))) if tries < TRIES_MAX => {
                self.end(env, hosting, &actor);
                self.queue.push_again(env, PlannedMove { id, actor, to }, tries);
            }
            _ => self.fail(env, hosting, &actor, reason),
        }
    }

    /// Ends a failed move: the actor stays and everything is as before.
    fn fail(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId, reason: MoveError) {
        let (id, result) = (self.end(env, hosting, actor), Err(reason));
        env.command(Command::MoveEnded { id, result });
    }

    /// Makes the actor active here again and forgets its move.
    fn end(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId) -> MoveId {
        let Phase::MovingOut(out) = hosting.set_phase(actor, Phase::Active) else {
            unreachable!("the caller checked that the actor is moving out");
        };
        self.moving.remove(actor);
        hosting.dedup().move_cancelled(actor);
        env.timers.unset(out.deadline, Due::Move(actor.clone()));
        out.id
    }

    /// Aborts a move that the directory cannot have decided, and resumes the actor.
    pub(super) fn abort(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        actor: &ActorId,
        frozen: bool,
        reason: MoveError,
    ) {
        send_to_target(env, hosting, actor, MoveStep::Cancel);
        self.fail(env, hosting, actor, reason);
        if frozen && !env.planted.is(Bug::StayFrozen) {
            let (actor, epoch) = (actor.clone(), hosting.epoch_of(actor));
            env.command(Command::Resume { actor, epoch });
        }
    }

    /// Handles the deadline of a move.
    pub(in crate::node) fn on_deadline(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId, at: Time) {
        if hosting.moving_out(actor).is_some_and(|out| out.deadline == at) {
            self.give_up(env, hosting, actor, MoveError::DeadlineExceeded);
        }
    }

    /// Gives up a move: aborts it locally if possible, otherwise through the directory.
    fn give_up(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId, reason: MoveError) {
        let Some(out) = hosting.moving_out_mut(actor) else {
            return;
        };
        if let Some(group) = out.group {
            return self.group_fails(env, hosting, group, reason);
        }
        match &mut out.step {
            OutStep::Offered | OutStep::Taken => self.abort(env, hosting, actor, false, reason),
            OutStep::Freezing(given_up) => {
                given_up.get_or_insert(reason);
            }
            OutStep::Frozen(_) | OutStep::Staging { .. } => self.abort(env, hosting, actor, true, reason),
            OutStep::Deciding if env.planted.is(Bug::ResumeUndecided) => {
                self.abort(env, hosting, actor, true, reason);
            }
            OutStep::Deciding => {
                out.step = OutStep::Aborting(reason);
                ask_to_abort(env, hosting, actor);
            }
            OutStep::Aborting(_) => {}
        }
    }

    /// Handles the end of an activation that was to be moved.
    pub(in crate::node) fn on_ended_by_itself(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId) {
        if let Some(out) = hosting.moving_out_mut(actor) {
            let group = out.group.take();
            self.abort(env, hosting, actor, false, MoveError::Ended);
            if let Some(group) = group {
                self.group_fails(env, hosting, group, MoveError::Ended);
            }
        }
    }

    /// Handles the directory's decision on the source's side.
    pub(in crate::node) fn on_decided(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        attempt: &Attempt,
        node: NodeId,
        now: ActivationEpoch,
    ) {
        let Some(out) = move_out_of(hosting, attempt) else {
            return;
        };
        let actor = &attempt.actor;
        match out.step {
            OutStep::Deciding | OutStep::Aborting(_) if now > attempt.epoch => {
                self.begin_release(env, hosting, actor, node, now);
            }
            OutStep::Aborting(reason) => self.abort(env, hosting, actor, true, reason),
            _ => {}
        }
    }

    /// Handles the death of a target.
    pub(in crate::node) fn on_death(&mut self, env: &mut Env, hosting: &mut Hosting, node: NodeId) {
        self.queue.lost_with(env, node);
        self.stages_waiting.remove(&node);
        self.settling.lost_with(node);
        for actor in self.moving.clone() {
            if hosting.moving_out(&actor).is_some_and(|out| out.to == node) {
                self.give_up(env, hosting, &actor, MoveError::TargetLost);
            }
        }
        hosting.drop_tombstones_to(node);
    }

    /// Repeats unanswered abort requests to the new slot owners.
    pub(in crate::node) fn follow_owners(&self, env: &mut Env, hosting: &Hosting, changed: impl Fn(&ActorId) -> bool) {
        for actor in self.moving.iter().filter(|actor| changed(actor)) {
            let out = hosting.moving_out(actor);
            if out.is_some_and(|out| matches!(out.step, OutStep::Aborting(_))) {
                ask_to_abort(env, hosting, actor);
            }
        }
    }
}

/// Sends a step of an undecided move to its target. Returns the frame's number.
pub(super) fn send_to_target(env: &mut Env, hosting: &Hosting, actor: &ActorId, step: MoveStep) -> u64 {
    let out = hosting.moving_out(actor).expect("the actor is moving out");
    let attempt = Attempt {
        actor: actor.clone(),
        epoch: hosting.epoch_of(actor),
        number: out.attempt,
    };
    env.send(out.to, attempt.body(step))
}

/// The move that a frame is about, unless the frame is stale.
fn move_out_of<'a>(hosting: &'a mut Hosting, attempt: &Attempt) -> Option<&'a mut MoveOut> {
    let hosted = hosting.get_mut(&attempt.actor);
    let hosted = hosted.filter(|hosted| hosted.epoch() == attempt.epoch)?;
    hosted.moving_out().filter(|out| out.attempt == attempt.number)
}

fn ask_to_abort(env: &mut Env, hosting: &Hosting, actor: &ActorId) {
    let out = hosting.moving_out(actor).expect("the actor is moving out");
    let body = DirectoryBody::Abort {
        actor: actor.clone(),
        epoch: hosting.epoch_of(actor),
        attempt: out.attempt,
    };
    env.send(env.directory_of(actor), Body::Directory(body));
}

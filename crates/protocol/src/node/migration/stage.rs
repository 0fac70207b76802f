//! The image of an actor that moves away: freezing the actor, and sending its records and its state to the target.

use bytes::Bytes;
use elastin_types::{ActivationEpoch, ActorId, NodeId};

use super::MovesOut;
use super::settle::request_acknowledgements;
use super::source::send_to_target;
use crate::bug::Bug;
use crate::node::chunking::in_parts;
use crate::node::env::{Due, Env};
use crate::node::hosting::{Hosted, Hosting, OutStep};
use crate::{Command, MoveError, MoveStep, MovedRequest};

/// Chunks of an image in flight at once: enough to keep a connection busy, few enough that calls get through.
const CHUNKS_IN_FLIGHT: usize = 2;
/// An image this many times larger than one chunk takes long to send. Its chunks are half as large, so that calls wait
/// less behind each; shorter images are better finished quickly.
const LONG_IMAGE: usize = 8;

impl MovesOut {
    /// Handles the runtime's answer to `Freeze`: the actor stopped at a turn boundary, or could not be frozen.
    pub(in crate::node) fn on_frozen(
        &mut self,
        env: &mut Env,
        hosting: &mut Hosting,
        actor: &ActorId,
        epoch: ActivationEpoch,
        image: Option<Bytes>,
    ) {
        let hosted = hosting.get_mut(actor).filter(|hosted| hosted.epoch() == epoch);
        let Some(out) = hosted.and_then(Hosted::moving_out) else {
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
                self.abort(env, hosting, actor, false, reason);
                if let Some(group) = group {
                    self.group_fails(env, hosting, group, reason);
                }
            }
            (Some(_), Some(reason)) => self.abort(env, hosting, actor, true, reason),
            (Some(image), None) => {
                out.image_bytes = image.len();
                out.step = OutStep::Frozen(image);
                match group {
                    Some(group) => self.stage_group(env, hosting, group),
                    None => self.begin_staging(env, hosting, actor),
                }
            }
        }
    }

    /// Begins to send the image of a frozen actor, after its deduplication records.
    ///
    /// No turn runs any more, so calls in the queue have not run. The target must have the records before the move is
    /// decided.
    pub(super) fn begin_staging(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId) {
        let out = hosting.moving_out_mut(actor).expect("the actor is moving out");
        let OutStep::Frozen(image) = &mut out.step else {
            unreachable!("the caller checked that the actor is frozen");
        };
        let (image, in_flight) = (std::mem::take(image), Default::default());
        out.step = OutStep::Staging { image, in_flight };
        request_acknowledgements(env);
        if !env.planted.is(Bug::ForgetRequests) {
            let requests = hosting.dedup().hand_over(actor);
            for requests in in_parts(requests, env.limits.chunk_bytes, MovedRequest::bytes) {
                send_to_target(env, hosting, actor, MoveStep::Requests(requests));
            }
        }
        self.stage(env, hosting, actor);
    }

    /// Sends as many chunks of the image as may be in flight.
    pub(in crate::node) fn stage(&mut self, env: &mut Env, hosting: &mut Hosting, actor: &ActorId) {
        let limits = &env.limits;
        let (now, burst_bytes, pause) = (env.now, limits.burst_bytes, limits.stage_pause);
        let (move_deadline, chunk_bytes) = (limits.move_deadline, limits.chunk_bytes);
        loop {
            let Some(out) = hosting.moving_out_mut(actor) else {
                return;
            };
            let OutStep::Staging { image, in_flight } = &mut out.step else {
                return;
            };
            let acknowledged = env.acknowledged(out.to);
            while in_flight.front().is_some_and(|number| *number <= acknowledged) {
                in_flight.pop_front();
            }
            if out.image_bytes > burst_bytes {
                if in_flight.len() >= CHUNKS_IN_FLIGHT {
                    self.stages_waiting.entry(out.to).or_default().insert(actor.clone());
                    return;
                }
                if now < out.pauses_until {
                    env.timers.set(out.pauses_until, Due::Stage(actor.clone()));
                    return;
                }
                // In the second half of its time a move no longer yields to calls.
                let has_time = now + move_deadline / 2 < out.deadline;
                if has_time && env.carries_calls(out.to) {
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
            let number = send_to_target(env, hosting, actor, MoveStep::Stage { chunk, last });
            if let Some(out) = hosting.moving_out_mut(actor)
                && let OutStep::Staging { in_flight, .. } = &mut out.step
            {
                in_flight.push_back(number);
            }
        }
    }

    /// Resumes the image transfers that waited for acknowledgements of this peer.
    pub(in crate::node) fn resume_staging(&mut self, env: &mut Env, hosting: &mut Hosting, peer: NodeId) {
        for actor in self.stages_waiting.remove(&peer).unwrap_or_default() {
            self.stage(env, hosting, &actor);
        }
    }
}

/// Has the runtime freeze an actor that its target has accepted.
pub(super) fn freeze(env: &mut Env, hosting: &mut Hosting, actor: &ActorId) {
    let epoch = hosting.epoch_of(actor);
    let out = hosting.moving_out_mut(actor).expect("the actor is moving out");
    out.step = OutStep::Freezing(None);
    let actor = actor.clone();
    let deadline = out.deadline.min(env.now + env.limits.freeze_deadline);
    env.command(Command::Freeze { actor, epoch, deadline });
}

//! Inbound frames from peers, and loopback.

use elastin_types::NodeId;

use super::Node;
use super::authorization::may_send;
use super::migration::Attempt;
use crate::{Body, DirectoryBody, Frame, MoveBody, MoveStep, Slot};

impl Node {
    /// Handles a body from a peer, or from this node itself.
    fn on_body(&mut self, from: NodeId, body: Body) {
        let (env, calls) = (&mut self.env, &mut self.calls);
        match body {
            Body::Message { message, epoch: None } => {
                let passed = self.directory.ask(env, message);
                self.reject_if_full(passed);
            }
            Body::Message {
                message,
                epoch: Some(epoch),
            } => {
                let accepted = self.hosting.accept(env, calls, message, epoch, None);
                self.reject_if_full(accepted);
            }
            Body::Passed { message, epoch } => {
                let accepted = self.hosting.accept(env, calls, message, epoch, Some(from));
                self.reject_if_full(accepted);
            }
            Body::PassedOn { actor, call, to } => {
                let change = self.routing.on_passed_on(env, calls, actor, call, to);
                self.apply_path(change);
            }
            Body::Landed { actor, call, epoch } => {
                let change = self.routing.on_landed(env, calls, from, actor, call, epoch);
                self.apply_path(change);
            }
            Body::Kept { actor, call, caller } => self.routing.on_kept(&actor, call, caller),
            Body::Returned { message, place } => {
                let change = self.routing.on_returned(env, calls, from, message, place);
                self.apply_path(change);
            }
            Body::Rejected { actor, call, error } => {
                calls.complete(env, call, Err(*error));
                let change = self.routing.message_gone(env, &actor, call);
                self.apply_path(change);
            }
            Body::Reply { call, outcome } => calls.complete(env, call, outcome),
            Body::Ping => env.acknowledge_promptly(from),
            Body::ViewIs { .. } => {}
            Body::Move(body) => self.on_move_body(from, body),
            Body::Directory(body) => self.on_directory_body(from, body),
            Body::Leaving => self.on_leaving(from),
            Body::Parted => {
                calls.node_left(from);
                self.routing.on_parted(from);
            }
        }
    }

    /// Handles a step from the other side of a move.
    fn on_move_body(&mut self, from: NodeId, body: MoveBody) {
        let (env, hosting) = (&mut self.env, &mut self.hosting);
        let attempt = Attempt {
            actor: body.actor,
            epoch: body.epoch,
            number: body.attempt,
        };
        let effect = match body.step {
            MoveStep::Offer => self.moves_in.on_offer(env, hosting, &self.routing, from, &attempt),
            MoveStep::Cancel => self.moves_in.on_cancel(hosting, &attempt),
            MoveStep::Settled => self.moves_in.on_settled(env, hosting, &attempt),
            MoveStep::Requests(requests) => {
                self.moves_in.on_requests(env, hosting, &attempt, requests);
                None
            }
            MoveStep::Stage { chunk, last } => {
                self.moves_in.on_stage(env, hosting, &attempt, &chunk, last);
                None
            }
            MoveStep::Release { to_epoch, queue, last } => {
                self.moves_in
                    .on_release(env, hosting, from, &attempt, to_epoch, queue, last);
                None
            }
            MoveStep::Accept => {
                self.moves_out.on_accept(env, hosting, from, &attempt);
                None
            }
            MoveStep::Refuse(reason) => {
                self.moves_out.on_refuse(env, hosting, &attempt, reason);
                None
            }
            MoveStep::Arrived => {
                self.moves_out.on_arrived(env, hosting, &attempt);
                None
            }
        };
        self.apply(effect);
    }

    fn on_directory_body(&mut self, from: NodeId, body: DirectoryBody) {
        let (env, hosting) = (&mut self.env, &mut self.hosting);
        match body {
            DirectoryBody::Grant { actor, epoch } => {
                let effect = hosting.on_grant(env, actor, epoch);
                self.apply(effect);
            }
            DirectoryBody::EndNoted { actor, epoch } => {
                let effect = hosting.on_end_noted(&actor, epoch);
                self.apply(effect);
            }
            DirectoryBody::Decided {
                actor,
                epoch,
                attempt: number,
                node,
                now,
                by,
            } => {
                if hosting.accepts_owner(&actor, by) {
                    let attempt = Attempt { actor, epoch, number };
                    self.moves_out.on_decided(env, hosting, &attempt, node, now);
                    let effect = self.moves_in.on_decided(env, hosting, &attempt, node, now);
                    self.apply(effect);
                }
            }
            DirectoryBody::Recover { slots } => {
                let slots = hosting.on_recover(env, from, slots);
                self.hosting_follows_owners(|actor| slots.contains(&Slot::of(actor)));
            }
            DirectoryBody::Ended { .. }
            | DirectoryBody::Commit { .. }
            | DirectoryBody::Abort { .. }
            | DirectoryBody::HandOver { .. }
            | DirectoryBody::Recovered { .. } => self.directory.on_question(env, from, body),
        }
    }

    /// Handles a frame from a peer.
    pub(super) fn on_frame(&mut self, from: NodeId, frame: Frame) {
        if self.env.is_dead(from) {
            return;
        }
        match self.env.take_frame(from, frame) {
            // Fast path: no frame is waiting, and this is the next one.
            Some((acknowledged, body)) => self.handle_frame(from, acknowledged, body),
            None => self.handle_waiting(from),
        }
        self.end_of_frames(from);
    }

    /// Handles the waiting frames of a peer, up to the first one sent in a view that this node does not know yet.
    pub(super) fn handle_frames(&mut self, from: NodeId) {
        self.handle_waiting(from);
        self.end_of_frames(from);
    }

    fn handle_waiting(&mut self, from: NodeId) {
        while let Some((acknowledged, body)) = self.env.next_frame(from) {
            self.handle_frame(from, acknowledged, body);
        }
    }

    #[inline]
    fn handle_frame(&mut self, from: NodeId, acknowledged: u64, body: Body) {
        if may_send(self.env.view(), from, &body) {
            self.on_body(from, body);
        } else {
            self.refused += 1;
            self.env.refuse(from);
        }
        // INVARIANT: every message that a frame causes is sent before the frame is acknowledged. This includes bounces,
        // so a frame that delivered messages is acknowledged with the next event at the earliest.
        self.drain_loopback();
        if self.env.frame_done(from, acknowledged) {
            self.on_acknowledged(from);
        }
    }

    /// Finishes a run of frames from a peer: applies and sends acknowledgements.
    fn end_of_frames(&mut self, from: NodeId) {
        if self.env.take_later_acknowledgement(from) {
            self.on_acknowledged(from);
        }
        self.env.acknowledge(from);
    }

    /// Resumes work that waited for a peer to acknowledge more frames.
    fn on_acknowledged(&mut self, peer: NodeId) {
        self.settle_paths(peer);
        self.moves_out.resume_staging(&mut self.env, &mut self.hosting, peer);
        self.drain_loopback();
    }

    /// Handles the bodies that this node has sent to itself.
    pub(super) fn drain_loopback(&mut self) {
        while let Some(body) = self.env.next_loopback() {
            self.on_body(self.env.me, body);
            self.env.loopback_done();
            self.settle_paths(self.env.me);
        }
    }
    /// Re-checks the paths that waited for acknowledgements of this peer.
    fn settle_paths(&mut self, peer: NodeId) {
        for actor in self.routing.take_waiting(peer) {
            let change = self.routing.settle(&mut self.env, &actor);
            self.apply_path(change);
        }
    }
}

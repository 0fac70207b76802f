//! Inbound frames from peers, and loopback.

use elastin_types::NodeId;

use super::Node;
use crate::authorization::may_send;
use crate::{Body, DirectoryBody, Frame};

impl Node {
    /// Handles a body from a peer, or from this node itself.
    pub(super) fn on_body(&mut self, from: NodeId, body: Body) {
        match body {
            Body::Message { message, epoch: None } => self.ask_directory(message),
            Body::Message {
                message,
                epoch: Some(epoch),
            } => self.accept(message, epoch, None),
            Body::Passed { message, epoch } => self.accept(message, epoch, Some(from)),
            Body::PassedOn { actor, call, to } => self.on_passed_on(actor, call, to),
            Body::Landed { actor, call, epoch } => self.on_landed(from, actor, call, epoch),
            Body::Kept { actor, call, caller } => self.on_kept(&actor, call, caller),
            Body::Returned { message, place } => self.on_returned(from, message, place),
            Body::Rejected { actor, call, error } => self.on_rejected(&actor, call, *error),
            Body::Reply { call, outcome } => self.complete(call, outcome),
            Body::Ping => self.sessions.acknowledge_promptly(from),
            Body::ViewIs { .. } => {}
            Body::Move(body) => self.on_move_body(from, body),
            Body::Directory(body) => self.on_directory_body(from, body),
            Body::Leaving => self.on_leaving(from),
            Body::Parted => self.on_parted(from),
        }
    }

    pub(super) fn on_directory_body(&mut self, from: NodeId, body: DirectoryBody) {
        match body {
            DirectoryBody::Grant { actor, epoch } => self.on_grant(actor, epoch),
            DirectoryBody::EndNoted { actor, epoch } => self.on_end_noted(actor, epoch),
            DirectoryBody::Decided {
                actor,
                epoch,
                attempt,
                node,
                now,
                by,
            } => {
                if self.accepts_owner(&actor, by) {
                    self.on_decided_out(&actor, epoch, attempt, node, now);
                    self.on_decided_in(&actor, epoch, attempt, node, now);
                }
            }
            DirectoryBody::Recover { slots } => self.on_recover(from, slots),
            DirectoryBody::Ended { .. }
            | DirectoryBody::Commit { .. }
            | DirectoryBody::Abort { .. }
            | DirectoryBody::HandOver { .. }
            | DirectoryBody::Recovered { .. } => self.on_question(from, body),
        }
    }

    /// Handles a frame from a peer.
    pub(super) fn on_frame(&mut self, from: NodeId, frame: Frame) {
        if self.sessions.is_dead(from) {
            return;
        }
        match self.sessions.take_frame(from, frame) {
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
        while let Some((acknowledged, body)) = self.sessions.next_frame(from) {
            self.handle_frame(from, acknowledged, body);
        }
    }

    #[inline]
    fn handle_frame(&mut self, from: NodeId, acknowledged: u64, body: Body) {
        if may_send(self.sessions.view(), from, &body) {
            self.on_body(from, body);
        } else {
            self.refused += 1;
            self.sessions.refuse(from);
        }
        // INVARIANT: every message that a frame causes is sent before the frame is acknowledged. This includes bounces,
        // so a frame that delivered messages is acknowledged with the next event at the earliest.
        self.drain_loopback();
        if self.sessions.frame_done(from, acknowledged) {
            self.on_acknowledged(from);
        }
    }

    /// Finishes a run of frames from a peer: applies and sends acknowledgements.
    fn end_of_frames(&mut self, from: NodeId) {
        if self.sessions.take_later_acknowledgement(from) {
            self.on_acknowledged(from);
        }
        self.sessions.acknowledge(from);
    }

    /// Resumes work that waited for a peer to acknowledge more frames.
    pub(super) fn on_acknowledged(&mut self, peer: NodeId) {
        self.settle_routes_waiting_for(peer);
        self.resume_staging(peer);
        self.drain_loopback();
    }

    /// Handles the bodies that this node has sent to itself.
    pub(super) fn drain_loopback(&mut self) {
        while let Some(body) = self.sessions.next_loopback() {
            self.on_body(self.sessions.me, body);
            self.sessions.loopback_done();
            self.settle_routes_waiting_for(self.sessions.me);
        }
    }
}

//! Directory slots owned by this node: locations of actors, and the decisions about their next host.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered, SlotEpoch};

use super::Node;
use super::measures::Full;
use crate::bug::Bug;
use crate::directory_entry::{DirectoryEntry, HostedAt};
use crate::hosted::FIRST_ATTEMPT_AFTER_MOVE;
use crate::slots::{Question, SlotPhase};
use crate::{Body, Command, DirectoryBody, Slot};

impl Node {
    /// Forwards a message to its actor's host, or to the owner of the slot if that is another node by now.
    pub(super) fn ask_directory(&mut self, message: Arc<Message>) {
        let owner = self.sessions.directory_of(&message.target);
        if owner != self.sessions.me {
            self.report_passed_on(&message, owner);
            let epoch = None;
            self.sessions.send(owner, Body::Message { message, epoch });
            return;
        }
        let slot = Slot::of(&message.target);
        let owned = self
            .slots
            .get_mut(&slot)
            .expect("the view's owner of a slot has its table");
        match &mut owned.phase {
            SlotPhase::Open => self.pass_to_host(message),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => {
                if queue.len() < self.sessions.limits.held_per_actor {
                    queue.push_back(Question::Pass(message));
                } else {
                    self.reject_full(Full::Directory, message);
                }
            }
        }
    }

    fn report_passed_on(&mut self, message: &Message, to: NodeId) {
        let (actor, call) = (message.target.clone(), message.header.call);
        self.sessions.send(call.origin, Body::PassedOn { actor, call, to });
    }

    fn pass(&mut self, message: Arc<Message>, to: NodeId, epoch: ActivationEpoch) {
        self.report_passed_on(&message, to);
        self.sessions.send(to, Body::Passed { message, epoch });
    }

    pub(super) fn slot_queue(&mut self, slot: Slot) -> &mut VecDeque<Question> {
        match &mut self
            .slots
            .get_mut(&slot)
            .expect("the caller checked that the slot is owned")
            .phase
        {
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => queue,
            SlotPhase::Open => unreachable!("only called for a closed slot"),
        }
    }

    fn entry(&mut self, actor: &ActorId) -> Option<&mut DirectoryEntry> {
        self.slots.get_mut(&Slot::of(actor))?.entries.get_mut(actor)
    }

    /// Whether this node owns the directory slot of an actor and the slot is open. A slot that is still being
    /// transferred here is not.
    pub fn answers_for(&self, actor: &ActorId) -> bool {
        let slot = self.slots.get(&Slot::of(actor));
        slot.is_some_and(|slot| matches!(slot.phase, SlotPhase::Open))
    }

    /// The host of an actor, according to the directory slots owned by this node.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        let entry = self.slots.get(&Slot::of(actor))?.entries.get(actor)?;
        entry.hosted_at().map(|at| at.node)
    }

    /// Forwards a message to the actor's host, or requests a placement first.
    pub(super) fn pass_to_host(&mut self, message: Arc<Message>) {
        let held_max = self.sessions.limits.held_per_actor;
        let known = self.entry(&message.target);
        if let Some(at) = known.as_ref().and_then(|known| known.hosted_at()) {
            if !self.sessions.is_dead(at.node) {
                return self.pass(message, at.node, at.epoch);
            }
        } else if let Some(placing) = known.and_then(DirectoryEntry::as_placing) {
            if placing.held.len() < held_max {
                placing.held.push_back(message);
            } else {
                self.reject_full(Full::Actor, message);
            }
            return;
        }
        let actor = message.target.clone();
        let command = Command::NeedPlacement {
            actor: actor.clone(),
            caller: message.header.caller.clone(),
            caller_node: message.header.call.origin,
        };
        let held = VecDeque::from([message]);
        let owned = self
            .slots
            .get_mut(&Slot::of(&actor))
            .expect("the caller checked that the slot is owned");
        owned.entries.insert(&actor, DirectoryEntry::placing(held));
        self.sessions.command(command);
    }

    /// Handles the answer of placement.
    pub(super) fn on_placed(&mut self, actor: ActorId, node: Option<NodeId>) {
        let Some(placing) = self.entry(&actor).and_then(DirectoryEntry::as_placing) else {
            // The slot has a new owner, which requests a placement of its own.
            return;
        };
        let held = std::mem::take(&mut placing.held);
        let slot = Slot::of(&actor);
        let view = self.sessions.view();
        let node = node.filter(|node| view.may_take_actors(*node));
        // Placement may lag behind the view and choose a node that is gone.
        match node.or_else(|| view.any_place(slot)) {
            Some(node) => {
                let owned = self.slots.get_mut(&slot).expect("the slot holds the entry");
                let epoch = owned.grant();
                if self.sessions.planted.is(Bug::ReuseEpoch) {
                    owned.counter -= 1;
                }
                let attempts_void = 0;
                let at = HostedAt {
                    node,
                    epoch,
                    attempts_void,
                };
                owned.entries.insert(&actor, DirectoryEntry::hosted(at));
                self.sessions
                    .send(node, Body::Directory(DirectoryBody::Grant { actor, epoch }));
                for message in held {
                    self.pass(message, node, epoch);
                }
            }
            None => {
                let owned = self.slots.get_mut(&slot).expect("the slot holds the entry");
                owned.entries.remove(&actor);
                for message in held {
                    self.reject(message, CallError::NotDelivered(NotDelivered::NoPlace));
                }
            }
        }
    }

    /// Handles a question to the owner of a slot.
    pub(super) fn on_question(&mut self, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::HandOver { slots, entries, last } => self.on_hand_over(slots, entries, last),
            DirectoryBody::Recovered { entries, done } => self.on_recovered(from, entries, done),
            DirectoryBody::Ended { ref actor, .. }
            | DirectoryBody::Commit { ref actor, .. }
            | DirectoryBody::Abort { ref actor, .. } => {
                let slot = Slot::of(actor);
                match self.slots.get_mut(&slot).map(|owned| &mut owned.phase) {
                    // The sender repeats its question to the new owner once it has this node's view.
                    None => {}
                    Some(SlotPhase::Open) => self.answer(from, question),
                    Some(SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. }) => {
                        queue.push_back(Question::Ask(from, question));
                    }
                }
            }
            DirectoryBody::Grant { .. }
            | DirectoryBody::EndNoted { .. }
            | DirectoryBody::Decided { .. }
            | DirectoryBody::Recover { .. } => unreachable!("bodies for hosts are handled elsewhere"),
        }
    }

    pub(super) fn answer(&mut self, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::Ended { actor, epoch } => self.on_ended(from, actor, epoch),
            DirectoryBody::Commit {
                actor,
                from: source,
                epoch,
                attempt,
            } => self.on_commit(from, actor, source, epoch, attempt),
            DirectoryBody::Abort { actor, epoch, attempt } => self.on_abort(from, actor, epoch, attempt),
            _ => unreachable!("not a question to a slot owner"),
        }
    }

    /// Handles the end of an activation.
    fn on_ended(&mut self, from: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        let known = self.entry(&actor).and_then(|known| known.hosted_at());
        if known.is_some_and(|at| at.node == from && at.epoch == epoch) {
            let owned = self.slots.get_mut(&Slot::of(&actor)).expect("the slot holds the entry");
            owned.entries.remove(&actor);
        }
        self.sessions
            .send(from, Body::Directory(DirectoryBody::EndNoted { actor, epoch }));
    }

    /// Handles a target that has the image and asks to become the host: the compare-and-swap that decides every move.
    fn on_commit(&mut self, target: NodeId, actor: ActorId, source: NodeId, epoch: ActivationEpoch, attempt: u32) {
        let owned = self
            .slots
            .get_mut(&Slot::of(&actor))
            .expect("the caller checked that the slot is owned");
        let (mut may, mut was_given_anew) = (self.sessions.planted.is(Bug::CommitBlindly), false);
        if let Some(at) = owned.entries.get(&actor).and_then(DirectoryEntry::hosted_at) {
            may |= at.node == source && at.epoch == epoch && attempt >= at.attempts_void;
            // The source was gone, and the target was granted a new activation that it has not learned of yet. It must
            // not take the move for decided: the source may have aborted the move and resumed before it died.
            was_given_anew = at.node == target && at.attempts_void < FIRST_ATTEMPT_AFTER_MOVE;
        }
        if !may && was_given_anew {
            let (by, now) = (owned.epoch, owned.grant());
            return self.send(target, &actor, (epoch, attempt), (source, now), by);
        }
        if !may {
            return self.report_decided(target, &actor, epoch, attempt, source);
        }
        let now = owned.grant();
        let at = HostedAt {
            node: target,
            epoch: now,
            attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
        };
        owned.entries.insert(&actor, DirectoryEntry::hosted(at));
        self.report_decided(source, &actor, epoch, attempt, source);
        self.report_decided(target, &actor, epoch, attempt, source);
    }

    /// Handles a source that asks to abort its move.
    fn on_abort(&mut self, source: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32) {
        if let Some(known) = self.entry(&actor)
            && let Some(mut at) = known.hosted_at()
            && at.node == source
            && at.epoch == epoch
        {
            at.attempts_void = at.attempts_void.max(attempt.saturating_add(1));
            *known = DirectoryEntry::hosted(at);
        }
        self.report_decided(source, &actor, epoch, attempt, source);
    }

    /// Reports the actor's current location. If it has none, the activation that was to move is over, and the report
    /// names no location that its receiver could act on.
    fn report_decided(&mut self, to: NodeId, actor: &ActorId, epoch: ActivationEpoch, attempt: u32, source: NodeId) {
        let owned = self
            .slots
            .get_mut(&Slot::of(actor))
            .expect("the caller checked that the slot is owned");
        let by = owned.epoch;
        let (node, now) = match owned.entries.get(actor).and_then(DirectoryEntry::hosted_at) {
            Some(at) => (at.node, at.epoch),
            // The directory considers the activation ended while it was being moved. Hence the source must not resume,
            // and the target must not start.
            None => (source, owned.grant()),
        };
        self.send(to, actor, (epoch, attempt), (node, now), by);
    }

    /// Reports the actor's location to a node that asked about this attempt.
    fn send(
        &mut self,
        to: NodeId,
        actor: &ActorId,
        (epoch, attempt): (ActivationEpoch, u32),
        (node, now): (NodeId, ActivationEpoch),
        by: SlotEpoch,
    ) {
        let body = DirectoryBody::Decided {
            actor: actor.clone(),
            epoch,
            attempt,
            node,
            now,
            by,
        };
        self.sessions.send(to, Body::Directory(body));
    }
}

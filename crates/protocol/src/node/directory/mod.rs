//! Directory slots owned by this node: locations of actors, and the decisions about their next host.
//!
//! `transfer` moves slots between owners.

mod entry;
mod slot;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId, SlotEpoch};

use super::env::Env;
use super::hosting::FIRST_ATTEMPT_AFTER_MOVE;
use super::measures::{Full, NoRoom};
use crate::bug::Bug;
use crate::{Body, Command, DirectoryBody, Slot};

pub(super) use transfer::ENTRIES_PER_FRAME;

use entry::{DirectoryEntry, HostedAt};
use slot::{OwnedSlot, Question, SlotPhase};

/// The directory slots that the view assigns to this node.
#[derive(Debug, Default)]
pub(super) struct Directory {
    owned: BTreeMap<Slot, OwnedSlot>,
    /// The subset of `owned` that is not open.
    // INVARIANT: the entries of a closed slot are locations reported by other nodes; none is being placed.
    closed: BTreeSet<Slot>,
    /// Owner epoch to which this node last handed over each slot.
    handed_over: BTreeMap<Slot, SlotEpoch>,
    /// Slots whose recovery requests to all hosts are still to be sent.
    recovery_wanted: BTreeSet<Slot>,
}

impl Directory {
    /// Number of owned slots.
    pub(super) fn len(&self) -> usize {
        self.owned.len()
    }

    /// Number of owned slots that are not open.
    pub(super) fn closed(&self) -> usize {
        self.closed.len()
    }

    /// Number of entries, and their bytes.
    pub(super) fn entries(&self) -> (usize, usize) {
        self.owned.values().fold((0, 0), |(count, bytes), slot| {
            (count + slot.entries.len(), bytes + slot.entries.bytes())
        })
    }

    /// Forwards a message to its actor's host, or to the owner of the slot if that is another node by now.
    /// Returns the message if a bound is reached.
    pub(super) fn ask(&mut self, env: &mut Env, message: Arc<Message>) -> Result<(), NoRoom> {
        let owner = env.directory_of(&message.target);
        if owner != env.me {
            report_passed_on(env, &message, owner);
            let epoch = None;
            env.send(owner, Body::Message { message, epoch });
            return Ok(());
        }
        let owned = self.slot_of(&message.target);
        match &mut owned.phase {
            SlotPhase::Open => self.pass_to_host(env, message),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => {
                if queue.len() >= env.limits.held_per_actor {
                    return Err(NoRoom(Full::Directory, message));
                }
                queue.push_back(Question::Pass(message));
                Ok(())
            }
        }
    }

    fn slot(&mut self, slot: Slot) -> &mut OwnedSlot {
        self.owned.get_mut(&slot).expect("the slot is owned")
    }

    fn slot_of(&mut self, actor: &ActorId) -> &mut OwnedSlot {
        self.slot(Slot::of(actor))
    }

    fn entry(&mut self, actor: &ActorId) -> Option<&mut DirectoryEntry> {
        self.owned.get_mut(&Slot::of(actor))?.entries.get_mut(actor)
    }

    /// Whether this node owns the directory slot of an actor and the slot is open. A slot that is still being
    /// transferred here is not.
    pub(super) fn answers_for(&self, actor: &ActorId) -> bool {
        let slot = self.owned.get(&Slot::of(actor));
        slot.is_some_and(|slot| matches!(slot.phase, SlotPhase::Open))
    }

    /// The host of an actor, according to the directory slots owned by this node.
    pub(super) fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        let entry = self.owned.get(&Slot::of(actor))?.entries.get(actor)?;
        entry.hosted_at().map(|at| at.node)
    }

    /// Forwards a message to the actor's host, or requests a placement first. Returns the message if a bound is reached.
    fn pass_to_host(&mut self, env: &mut Env, message: Arc<Message>) -> Result<(), NoRoom> {
        let owned = self.slot_of(&message.target);
        let known = owned.entries.get_mut(&message.target);
        if let Some(at) = known.as_ref().and_then(|known| known.hosted_at()) {
            if !env.is_dead(at.node) {
                pass(env, message, at.node, at.epoch);
                return Ok(());
            }
        } else if let Some(placing) = known.and_then(DirectoryEntry::as_placing) {
            if placing.held.len() >= env.limits.held_per_actor {
                return Err(NoRoom(Full::Actor, message));
            }
            placing.held.push_back(message);
            return Ok(());
        }
        let actor = message.target.clone();
        env.command(Command::NeedPlacement {
            actor: actor.clone(),
            caller: message.header.caller.clone(),
            caller_node: message.header.call.origin,
        });
        let held = VecDeque::from([message]);
        owned.entries.insert(&actor, DirectoryEntry::placing(held));
        Ok(())
    }

    /// Handles the answer of placement. Returns the messages for which there is no place.
    pub(super) fn on_placed(&mut self, env: &mut Env, actor: ActorId, node: Option<NodeId>) -> VecDeque<Arc<Message>> {
        let Some(placing) = self.entry(&actor).and_then(DirectoryEntry::as_placing) else {
            // The slot has a new owner, which requests a placement of its own.
            return VecDeque::new();
        };
        let held = std::mem::take(&mut placing.held);
        let view = env.view();
        let node = node.filter(|node| view.may_take_actors(*node));
        // Placement may lag behind the view and choose a node that is gone.
        let node = node.or_else(|| view.any_place(Slot::of(&actor)));
        let owned = self.slot_of(&actor);
        let Some(node) = node else {
            owned.entries.remove(&actor);
            return held;
        };
        let epoch = owned.grant();
        if env.planted.is(Bug::ReuseEpoch) {
            owned.counter -= 1;
        }
        let attempts_void = 0;
        let at = HostedAt {
            node,
            epoch,
            attempts_void,
        };
        owned.entries.insert(&actor, DirectoryEntry::hosted(at));
        env.send(node, Body::Directory(DirectoryBody::Grant { actor, epoch }));
        for message in held {
            pass(env, message, node, epoch);
        }
        VecDeque::new()
    }

    /// Handles a question to the owner of a slot.
    pub(super) fn on_question(&mut self, env: &mut Env, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::HandOver { slots, entries, last } => self.on_hand_over(env, slots, entries, last),
            DirectoryBody::Recovered { entries, done } => self.on_recovered(env, from, entries, done),
            DirectoryBody::Ended { ref actor, .. }
            | DirectoryBody::Commit { ref actor, .. }
            | DirectoryBody::Abort { ref actor, .. } => {
                let slot = Slot::of(actor);
                match self.owned.get_mut(&slot).map(|owned| &mut owned.phase) {
                    // The sender repeats its question to the new owner once it has this node's view.
                    None => {}
                    Some(SlotPhase::Open) => self.answer(env, from, question),
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

    fn answer(&mut self, env: &mut Env, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::Ended { actor, epoch } => self.on_ended(env, from, actor, epoch),
            DirectoryBody::Commit {
                actor,
                from: source,
                epoch,
                attempt,
            } => self.on_commit(env, from, actor, source, epoch, attempt),
            DirectoryBody::Abort { actor, epoch, attempt } => self.on_abort(env, from, actor, epoch, attempt),
            _ => unreachable!("not a question to a slot owner"),
        }
    }

    /// Handles the end of an activation.
    fn on_ended(&mut self, env: &mut Env, from: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        let known = self.entry(&actor).and_then(|known| known.hosted_at());
        if known.is_some_and(|at| at.node == from && at.epoch == epoch) {
            self.slot_of(&actor).entries.remove(&actor);
        }
        env.send(from, Body::Directory(DirectoryBody::EndNoted { actor, epoch }));
    }

    /// Handles a target that has the image and asks to become the host: the compare-and-swap that decides every move.
    fn on_commit(
        &mut self,
        env: &mut Env,
        target: NodeId,
        actor: ActorId,
        source: NodeId,
        epoch: ActivationEpoch,
        attempt: u32,
    ) {
        let owned = self.slot_of(&actor);
        let (mut may, mut was_given_anew) = (env.planted.is(Bug::CommitBlindly), false);
        if let Some(at) = owned.entries.get(&actor).and_then(DirectoryEntry::hosted_at) {
            may |= at.node == source && at.epoch == epoch && attempt >= at.attempts_void;
            // The source was gone, and the target was granted a new activation that it has not learned of yet. It must
            // not take the move for decided: the source may have aborted the move and resumed before it died.
            was_given_anew = at.node == target && at.attempts_void < FIRST_ATTEMPT_AFTER_MOVE;
        }
        if !may && was_given_anew {
            let (by, now) = (owned.epoch, owned.grant());
            return send_location(env, target, &actor, (epoch, attempt), (source, now), by);
        }
        if !may {
            return self.report_decided(env, target, &actor, epoch, attempt, source);
        }
        let now = owned.grant();
        let at = HostedAt {
            node: target,
            epoch: now,
            attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
        };
        owned.entries.insert(&actor, DirectoryEntry::hosted(at));
        self.report_decided(env, source, &actor, epoch, attempt, source);
        self.report_decided(env, target, &actor, epoch, attempt, source);
    }

    /// Handles a source that asks to abort its move.
    fn on_abort(&mut self, env: &mut Env, source: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32) {
        if let Some(known) = self.entry(&actor)
            && let Some(mut at) = known.hosted_at()
            && at.node == source
            && at.epoch == epoch
        {
            at.attempts_void = at.attempts_void.max(attempt.saturating_add(1));
            *known = DirectoryEntry::hosted(at);
        }
        self.report_decided(env, source, &actor, epoch, attempt, source);
    }

    /// Reports the actor's current location. If it has none, the activation that was to move is over, and the report
    /// names no location that its receiver could act on.
    fn report_decided(
        &mut self,
        env: &mut Env,
        to: NodeId,
        actor: &ActorId,
        epoch: ActivationEpoch,
        attempt: u32,
        source: NodeId,
    ) {
        let owned = self.slot_of(actor);
        let by = owned.epoch;
        let (node, now) = match owned.entries.get(actor).and_then(DirectoryEntry::hosted_at) {
            Some(at) => (at.node, at.epoch),
            // The directory considers the activation ended while it was being moved. Hence the source must not resume,
            // and the target must not start.
            None => (source, owned.grant()),
        };
        send_location(env, to, actor, (epoch, attempt), (node, now), by);
    }
}

/// Reports the actor's location to a node that asked about this attempt.
fn send_location(
    env: &mut Env,
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
    env.send(to, Body::Directory(body));
}

fn report_passed_on(env: &mut Env, message: &Message, to: NodeId) {
    let (actor, call) = (message.target.clone(), message.header.call);
    env.send(call.origin, Body::PassedOn { actor, call, to });
}

fn pass(env: &mut Env, message: Arc<Message>, to: NodeId, epoch: ActivationEpoch) {
    report_passed_on(env, &message, to);
    env.send(to, Body::Passed { message, epoch });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use elastin_types::{ActorType, CallId, Caller, Header, Method};

    use super::*;
    use crate::{Limits, Member, SlotTable, View};

    const ME: NodeId = NodeId(1);
    const SOURCE: NodeId = NodeId(2);
    const TARGET: NodeId = NodeId(3);

    #[test]
    fn an_aborted_attempt_is_not_committed() {
        let actor = ActorId::new(ActorType::of("Folder"), 1);
        let call = CallId {
            origin: ME,
            sequence: 1,
        };
        let message = Message {
            target: actor.clone(),
            header: Header::of_call(call, Caller::Client(ME)),
            method: Method::of("open"),
            body: Bytes::new(),
        };
        let slot = SlotEpoch(1);
        let members = [ME, SOURCE, TARGET].map(|node| (node, Member::SERVER));
        let (mut env, mut directory) = (Env::new(ME, Limits::default()), Directory::default());
        env.view = Some(View {
            revision: 10,
            members: Arc::new(members.into()),
            slots: SlotTable::owned_by(ME, slot),
        });
        assert!(directory.update(&mut env, None).is_empty());
        directory.ask(&mut env, Arc::new(message)).expect("nothing is held");
        assert!(directory.on_placed(&mut env, actor.clone(), Some(SOURCE)).is_empty());
        assert_eq!(directory.host_of(&actor), Some(SOURCE));

        let epoch = ActivationEpoch { slot, counter: 1 };
        let aborted = DirectoryBody::Abort {
            actor: actor.clone(),
            epoch,
            attempt: 0,
        };
        directory.on_question(&mut env, SOURCE, aborted);
        for (attempt, host) in [(0, SOURCE), (1, TARGET)] {
            let commit = DirectoryBody::Commit {
                actor: actor.clone(),
                from: SOURCE,
                epoch,
                attempt,
            };
            directory.on_question(&mut env, TARGET, commit);
            assert_eq!(directory.host_of(&actor), Some(host), "attempt {attempt}");
        }
    }
}

//! Transfer of directory slots between owners: handed over by the previous owner, or recovered from all hosts.
//!
//! Only the slots concerned close; the others are not touched.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActorId, Message, NodeId, SlotEpoch};

use super::Node;
use crate::bug::Bug;
use crate::hosted::{FIRST_ATTEMPT_AFTER_MOVE, Hosted, InStep, OutStep, Phase};
use crate::slots::{OwnedSlot, Question, SlotPhase};
use crate::{Body, DirectoryBody, Entry, Slot, View};

/// Directory entries in one frame: some tens of kilobytes.
const ENTRIES_PER_FRAME: usize = 512;
/// Slots handed over in one frame. They open together, so a few large slots should not keep many small ones closed.
const SLOTS_PER_FRAME: usize = 64;

/// Slots handed over to one new owner, with their entries and queued messages.
#[derive(Default)]
struct SlotHandover {
    slots: Vec<(Slot, SlotEpoch)>,
    entries: Vec<Entry>,
    waiting: Vec<Arc<Message>>,
}

impl SlotHandover {
    fn take_from(&mut self, owned: OwnedSlot) {
        let queue = match owned.phase {
            SlotPhase::Open => VecDeque::new(),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => queue,
        };
        // The sender of a question repeats it to the new owner.
        self.waiting
            .extend(queue.into_iter().filter_map(|question| match question {
                Question::Pass(message) => Some(message),
                Question::Ask(..) => None,
            }));
        for (actor, mut entry) in owned.entries.into_iter() {
            if let Some(at) = entry.hosted_at() {
                self.entries.push(Entry {
                    actor,
                    node: at.node,
                    epoch: at.epoch,
                    attempts_void: at.attempts_void,
                });
            } else if let Some(placing) = entry.as_placing() {
                self.waiting.extend(placing.held.drain(..));
            }
        }
    }
}

impl Node {
    /// Takes over the slots that the view assigns to this node, and hands over the slots that it reassigns.
    pub(super) fn update_slots(&mut self, before: Option<&View>) {
        let view = self.sessions.view().clone();
        let changed: Vec<Slot> = match before {
            Some(before) => view.slots.changed_since(&before.slots).collect(),
            None => Slot::all().collect(),
        };
        let mut given: BTreeMap<(NodeId, bool), SlotHandover> = BTreeMap::new();
        for slot in changed {
            let owner = view.slots.owner(slot);
            if let Some(owned) = self.slots.remove(&slot) {
                self.recovery_wanted.remove(&slot);
                self.closed_slots.remove(&slot);
                let given = given.entry((owner.node, owned.is_open())).or_default();
                given.slots.push((slot, owner.epoch));
                given.take_from(owned);
            } else if owner.previous == Some(self.sessions.me) && self.handed_over.get(&slot) < Some(&owner.epoch) {
                // The slot was assigned and reassigned between two views of this node, and its owner waits for a
                // hand-over.
                let given = given.entry((owner.node, false)).or_default();
                given.slots.push((slot, owner.epoch));
            }
            if owner.node == self.sessions.me {
                self.take_slot(slot, owner.epoch, owner.previous, &view);
            }
        }
        for ((to, known), given) in given {
            self.hand_over(to, known, given);
        }
        let closed: Vec<Slot> = self.closed_slots.iter().copied().collect();
        for slot in closed {
            self.unblock_closed_slot(slot, &view);
        }
        self.ask_for_recovery();
    }

    fn take_slot(&mut self, slot: Slot, epoch: SlotEpoch, previous: Option<NodeId>, view: &View) {
        let phase = match previous {
            None => SlotPhase::Open,
            Some(from) if !view.is_dead(from) && from != self.sessions.me => SlotPhase::Awaiting {
                from,
                queue: VecDeque::new(),
            },
            Some(_) => self.recovering(VecDeque::new(), slot),
        };
        let owned = OwnedSlot::new(epoch, phase);
        if !owned.is_open() {
            self.closed_slots.insert(slot);
        }
        self.slots.insert(slot, owned);
    }

    fn recovering(&mut self, queue: VecDeque<Question>, slot: Slot) -> SlotPhase {
        self.recovery_wanted.insert(slot);
        let missing = self.sessions.view().members.iter().filter(|(_, member)| member.hosts);
        SlotPhase::Recovering {
            missing: missing.map(|(node, _)| *node).collect(),
            queue,
        }
    }

    /// Sends each host one request for all slots that must be recovered.
    fn ask_for_recovery(&mut self) {
        let wanted = std::mem::take(&mut self.recovery_wanted);
        if wanted.is_empty() {
            return;
        }
        let slots: Vec<(Slot, SlotEpoch)> = wanted.iter().map(|slot| (*slot, self.slots[slot].epoch)).collect();
        let members = self.sessions.view().members.clone();
        for (node, _) in members.iter().filter(|(_, member)| member.hosts) {
            let slots = slots.clone();
            self.sessions
                .send(*node, Body::Directory(DirectoryBody::Recover { slots }));
        }
        for slot in wanted {
            self.open_if_recovered(slot);
        }
    }

    /// Unblocks a closed slot that waits for a node that has died.
    fn unblock_closed_slot(&mut self, slot: Slot, view: &View) {
        let owned = self
            .slots
            .get_mut(&slot)
            .expect("the caller checked that the slot is owned");
        match &mut owned.phase {
            SlotPhase::Open => {}
            SlotPhase::Awaiting { from, queue } if view.is_dead(*from) => {
                let queue = std::mem::take(queue);
                owned.entries.clear();
                let phase = self.recovering(queue, slot);
                self.slots
                    .get_mut(&slot)
                    .expect("the slot is owned, as checked above")
                    .phase = phase;
            }
            SlotPhase::Awaiting { .. } => {}
            SlotPhase::Recovering { missing, .. } => {
                missing.retain(|node| !view.is_dead(*node));
                self.open_if_recovered(slot);
            }
        }
    }

    /// Hands slots over to their new owner: first the entries, then the messages queued in them.
    fn hand_over(&mut self, to: NodeId, known: bool, given: SlotHandover) {
        let SlotHandover {
            slots,
            mut entries,
            waiting,
        } = given;
        if self.sessions.planted.is(Bug::HandOverNothing) {
            entries.clear();
        }
        if to != self.sessions.me {
            self.handed_over.extend(slots.iter().copied());
            entries.sort_unstable_by(|one, other| one.actor.cmp(&other.actor));
            for slots in slots.chunks(SLOTS_PER_FRAME) {
                let (now, later): (Vec<Entry>, Vec<Entry>) = entries
                    .into_iter()
                    .partition(|entry| slots.iter().any(|(slot, _)| *slot == Slot::of(&entry.actor)));
                entries = later;
                self.send_hand_over(to, slots, now, known);
            }
        }
        for message in waiting {
            self.ask_directory(message);
        }
    }

    fn send_hand_over(&mut self, to: NodeId, slots: &[(Slot, SlotEpoch)], mut entries: Vec<Entry>, known: bool) {
        loop {
            let rest = entries.split_off(entries.len().min(ENTRIES_PER_FRAME));
            let last = known.then_some(rest.is_empty());
            let slots = slots.to_vec();
            let body = DirectoryBody::HandOver { slots, entries, last };
            self.sessions.send(to, Body::Directory(body));
            if rest.is_empty() {
                return;
            }
            entries = rest;
        }
    }

    /// Handles slots handed over by their previous owner.
    pub(super) fn on_hand_over(&mut self, slots: Vec<(Slot, SlotEpoch)>, mut entries: Vec<Entry>, last: Option<bool>) {
        for (slot, epoch) in slots {
            let (now, later): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|entry| Slot::of(&entry.actor) == slot);
            entries = later;
            self.take_over(slot, epoch, now, last);
        }
        self.ask_for_recovery();
    }

    fn take_over(&mut self, slot: Slot, epoch: SlotEpoch, entries: Vec<Entry>, last: Option<bool>) {
        let owner = self.sessions.view().slots.owner(slot);
        if owner.node != self.sessions.me {
            // The slot has moved on to another owner, which may be waiting for this hand-over.
            let slots = vec![(slot, owner.epoch)];
            let body = DirectoryBody::HandOver { slots, entries, last };
            self.sessions.send(owner.node, Body::Directory(body));
            return;
        }
        let Some(owned) = self.slots.get_mut(&slot).filter(|owned| owned.epoch == epoch) else {
            return;
        };
        let SlotPhase::Awaiting { queue, .. } = &mut owned.phase else {
            return;
        };
        let queue = std::mem::take(queue);
        for entry in entries {
            owned.learn(entry);
        }
        match last {
            Some(true) => self.open_slot(slot, queue),
            Some(false) => *self.slot_queue(slot) = queue,
            None => {
                let phase = self.recovering(queue, slot);
                self.slots
                    .get_mut(&slot)
                    .expect("the slot is owned, as checked above")
                    .phase = phase;
            }
        }
    }

    /// Handles a host's report of its activations.
    pub(super) fn on_recovered(&mut self, from: NodeId, entries: Vec<Entry>, done: Vec<(Slot, SlotEpoch)>) {
        for entry in entries {
            if let Some(owned) = self.slots.get_mut(&Slot::of(&entry.actor))
                && matches!(owned.phase, SlotPhase::Recovering { .. })
            {
                owned.learn(entry);
            }
        }
        for (slot, epoch) in done {
            if let Some(owned) = self.slots.get_mut(&slot).filter(|owned| owned.epoch == epoch)
                && let SlotPhase::Recovering { missing, .. } = &mut owned.phase
            {
                missing.remove(&from);
                self.open_if_recovered(slot);
            }
        }
    }

    fn open_if_recovered(&mut self, slot: Slot) {
        let Some(owned) = self.slots.get_mut(&slot) else {
            return;
        };
        if let SlotPhase::Recovering { missing, queue } = &mut owned.phase
            && (missing.is_empty() || self.sessions.planted.is(Bug::OpenSlotTooEarly))
        {
            let queue = std::mem::take(queue);
            self.open_slot(slot, queue);
        }
    }

    /// Opens a slot and handles the questions queued for it.
    fn open_slot(&mut self, slot: Slot, queue: VecDeque<Question>) {
        self.slots
            .get_mut(&slot)
            .expect("the caller checked that the slot is owned")
            .phase = SlotPhase::Open;
        self.closed_slots.remove(&slot);
        for question in queue {
            match question {
                Question::Pass(message) => self.pass_to_host(message),
                Question::Ask(from, body) => self.answer(from, body),
            }
        }
    }

    /// Reports the activations hosted here to the new owner of slots. Earlier owners are ignored from then on.
    pub(super) fn on_recover(&mut self, from: NodeId, slots: Vec<(Slot, SlotEpoch)>) {
        for (slot, epoch) in &slots {
            let floor = self.slot_floors.entry(*slot).or_insert(*epoch);
            *floor = (*floor).max(*epoch);
        }
        let wanted: BTreeSet<Slot> = slots.iter().map(|(slot, _)| *slot).collect();
        let mut entries: Vec<Entry> = self
            .hosted
            .iter()
            .filter(|(actor, _)| wanted.contains(&Slot::of(actor)))
            .filter_map(|(actor, hosted)| self.vouch_for(&actor, hosted))
            .collect();
        entries.sort_unstable_by(|one, other| one.actor.cmp(&other.actor));
        let mut parts = entries.chunks(ENTRIES_PER_FRAME).map(<[Entry]>::to_vec).peekable();
        let mut bodies = Vec::new();
        while let Some(entries) = parts.next() {
            let done = if parts.peek().is_none() {
                slots.clone()
            } else {
                Vec::new()
            };
            bodies.push(DirectoryBody::Recovered { entries, done });
        }
        if bodies.is_empty() {
            bodies.push(DirectoryBody::Recovered {
                entries: Vec::new(),
                done: slots,
            });
        }
        for body in bodies {
            self.sessions.send(from, Body::Directory(body));
        }
        self.hosted_follow_owners(|actor| wanted.contains(&Slot::of(actor)));
    }

    /// The directory entry for an actor whose location this node is the authority on.
    fn vouch_for(&self, actor: &ActorId, hosted: &Hosted) -> Option<Entry> {
        let here = |epoch, attempts_void| Entry {
            actor: actor.clone(),
            node: self.sessions.me,
            epoch,
            attempts_void,
        };
        match hosted.phase() {
            Phase::Activating | Phase::Closed | Phase::Active => Some(here(hosted.epoch(), hosted.attempts())),
            Phase::MovingOut(out) => {
                let void = match out.step {
                    OutStep::Aborting(_) => out.attempt + 1,
                    _ => out.attempt,
                };
                Some(here(hosted.epoch(), void))
            }
            Phase::MovingIn(incoming) => match incoming.step {
                InStep::Committed(epoch) => Some(here(epoch, FIRST_ATTEMPT_AFTER_MOVE)),
                _ => None,
            },
            Phase::Releasing(releasing) => Some(Entry {
                actor: actor.clone(),
                node: releasing.to,
                epoch: releasing.to_epoch,
                attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
            }),
            Phase::Departed(departed) if departed.until.is_none() => Some(Entry {
                actor: actor.clone(),
                node: departed.to,
                epoch: departed.to_epoch,
                attempts_void: FIRST_ATTEMPT_AFTER_MOVE,
            }),
            Phase::Departed(_) | Phase::Expected | Phase::Leaving => None,
        }
    }
}

//! Transfer of directory slots between owners: handed over by the previous owner, or recovered from all hosts.
//!
//! Only the slots concerned close; the others are not touched.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use elastin_types::{Message, NodeId, SlotEpoch};

use super::slot::{OwnedSlot, Question, SlotPhase};
use super::{Directory, NoRoom};
use crate::bug::Bug;
use crate::node::env::Env;
use crate::{Body, DirectoryBody, Entry, Slot, View};

/// Directory entries in one frame: some tens of kilobytes.
pub(in crate::node) const ENTRIES_PER_FRAME: usize = 512;
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
    fn take_from(&mut self, mut owned: OwnedSlot) {
        let queue = owned.take_queue().into_iter();
        // The sender of a question repeats it to the new owner.
        self.waiting.extend(queue.filter_map(|question| match question {
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

impl Directory {
    /// Takes over the slots that the view assigns to this node, and hands over the slots that it reassigns. Returns
    /// queued messages for which a bound is reached.
    pub(in crate::node) fn update(&mut self, env: &mut Env, before: Option<&View>) -> Vec<NoRoom> {
        let view = env.view().clone();
        let changed: Vec<Slot> = match before {
            Some(before) => view.slots.changed_since(&before.slots).collect(),
            None => Slot::all().collect(),
        };
        let mut given: BTreeMap<(NodeId, bool), SlotHandover> = BTreeMap::new();
        for slot in changed {
            let owner = view.slots.owner(slot);
            if let Some(owned) = self.owned.remove(&slot) {
                self.recovery_wanted.remove(&slot);
                self.closed.remove(&slot);
                let given = given.entry((owner.node, owned.is_open())).or_default();
                given.slots.push((slot, owner.epoch));
                given.take_from(owned);
            } else if owner.previous == Some(env.me) && self.handed_over.get(&slot) < Some(&owner.epoch) {
                // The slot was assigned and reassigned between two views of this node, and its owner waits for a
                // hand-over.
                let given = given.entry((owner.node, false)).or_default();
                given.slots.push((slot, owner.epoch));
            }
            if owner.node == env.me {
                self.take_slot(env, slot, owner.epoch, owner.previous, &view);
            }
        }
        let mut no_room = Vec::new();
        for ((to, known), given) in given {
            no_room.extend(self.hand_over(env, to, known, given));
        }
        let closed: Vec<Slot> = self.closed.iter().copied().collect();
        for slot in closed {
            self.unblock_closed_slot(env, slot, &view);
        }
        self.ask_for_recovery(env);
        no_room
    }

    fn take_slot(&mut self, env: &Env, slot: Slot, epoch: SlotEpoch, previous: Option<NodeId>, view: &View) {
        let phase = match previous {
            None => SlotPhase::Open,
            Some(from) if !view.is_dead(from) && from != env.me => SlotPhase::Awaiting {
                from,
                queue: VecDeque::new(),
            },
            Some(_) => self.recovering(env, slot, VecDeque::new()),
        };
        let owned = OwnedSlot::new(epoch, phase);
        if !owned.is_open() {
            self.closed.insert(slot);
        }
        self.owned.insert(slot, owned);
    }

    /// Has a slot recovered from all hosts, with the questions queued for it so far.
    fn recover(&mut self, env: &Env, slot: Slot) {
        let queue = self.slot(slot).take_queue();
        let phase = self.recovering(env, slot, queue);
        self.slot(slot).phase = phase;
    }

    fn recovering(&mut self, env: &Env, slot: Slot, queue: VecDeque<Question>) -> SlotPhase {
        self.recovery_wanted.insert(slot);
        let missing = env.view().members.iter().filter(|(_, member)| member.hosts);
        SlotPhase::Recovering {
            missing: missing.map(|(node, _)| *node).collect(),
            queue,
        }
    }

    /// Sends each host one request for all slots that must be recovered.
    fn ask_for_recovery(&mut self, env: &mut Env) {
        let wanted = std::mem::take(&mut self.recovery_wanted);
        if wanted.is_empty() {
            return;
        }
        let slots: Vec<(Slot, SlotEpoch)> = wanted.iter().map(|slot| (*slot, self.owned[slot].epoch)).collect();
        let members = env.view().members.clone();
        for (node, _) in members.iter().filter(|(_, member)| member.hosts) {
            let slots = slots.clone();
            env.send(*node, Body::Directory(DirectoryBody::Recover { slots }));
        }
        for slot in wanted {
            self.open_if_recovered(env, slot);
        }
    }

    /// Unblocks a closed slot that waits for a node that has died.
    fn unblock_closed_slot(&mut self, env: &mut Env, slot: Slot, view: &View) {
        let owned = self.slot(slot);
        match &mut owned.phase {
            SlotPhase::Awaiting { from, .. } if view.is_dead(*from) => {
                owned.entries.clear();
                self.recover(env, slot);
            }
            SlotPhase::Open | SlotPhase::Awaiting { .. } => {}
            SlotPhase::Recovering { missing, .. } => {
                missing.retain(|node| !view.is_dead(*node));
                self.open_if_recovered(env, slot);
            }
        }
    }

    /// Hands slots over to their new owner: first the entries, then the messages queued in them.
    fn hand_over(&mut self, env: &mut Env, to: NodeId, known: bool, given: SlotHandover) -> Vec<NoRoom> {
        let SlotHandover {
            slots,
            mut entries,
            waiting,
        } = given;
        if env.planted.is(Bug::HandOverNothing) {
            entries.clear();
        }
        if to != env.me {
            self.handed_over.extend(slots.iter().copied());
            entries.sort_unstable_by(|one, other| one.actor.cmp(&other.actor));
            for slots in slots.chunks(SLOTS_PER_FRAME) {
                let (now, later): (Vec<Entry>, Vec<Entry>) = entries
                    .into_iter()
                    .partition(|entry| slots.iter().any(|(slot, _)| *slot == Slot::of(&entry.actor)));
                entries = later;
                Self::send_hand_over(env, to, slots, now, known);
            }
        }
        let asked = waiting.into_iter().map(|message| self.ask(env, message));
        asked.filter_map(Result::err).collect()
    }

    fn send_hand_over(env: &mut Env, to: NodeId, slots: &[(Slot, SlotEpoch)], mut entries: Vec<Entry>, known: bool) {
        loop {
            let rest = entries.split_off(entries.len().min(ENTRIES_PER_FRAME));
            let last = known.then_some(rest.is_empty());
            let slots = slots.to_vec();
            let body = DirectoryBody::HandOver { slots, entries, last };
            env.send(to, Body::Directory(body));
            if rest.is_empty() {
                return;
            }
            entries = rest;
        }
    }

    /// Handles slots handed over by their previous owner.
    pub(super) fn on_hand_over(
        &mut self,
        env: &mut Env,
        slots: Vec<(Slot, SlotEpoch)>,
        mut entries: Vec<Entry>,
        last: Option<bool>,
    ) {
        for (slot, epoch) in slots {
            let (now, later): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|entry| Slot::of(&entry.actor) == slot);
            entries = later;
            self.take_over(env, slot, epoch, now, last);
        }
        self.ask_for_recovery(env);
    }

    fn take_over(&mut self, env: &mut Env, slot: Slot, epoch: SlotEpoch, entries: Vec<Entry>, last: Option<bool>) {
        let owner = env.view().slots.owner(slot);
        if owner.node != env.me {
            // The slot has moved on to another owner, which may be waiting for this hand-over.
            let slots = vec![(slot, owner.epoch)];
            let body = DirectoryBody::HandOver { slots, entries, last };
            env.send(owner.node, Body::Directory(body));
            return;
        }
        let is_awaited = |owned: &&mut OwnedSlot| owned.epoch == epoch && owned.is_awaiting();
        let Some(owned) = self.owned.get_mut(&slot).filter(is_awaited) else {
            return;
        };
        for entry in entries {
            owned.learn(entry);
        }
        match last {
            Some(true) => self.open(env, slot),
            Some(false) => {}
            None => self.recover(env, slot),
        }
    }

    /// Handles a host's report of its activations.
    pub(super) fn on_recovered(
        &mut self,
        env: &mut Env,
        from: NodeId,
        entries: Vec<Entry>,
        done: Vec<(Slot, SlotEpoch)>,
    ) {
        for entry in entries {
            if let Some(owned) = self.owned.get_mut(&Slot::of(&entry.actor))
                && matches!(owned.phase, SlotPhase::Recovering { .. })
            {
                owned.learn(entry);
            }
        }
        for (slot, epoch) in done {
            if let Some(owned) = self.owned.get_mut(&slot).filter(|owned| owned.epoch == epoch)
                && let SlotPhase::Recovering { missing, .. } = &mut owned.phase
            {
                missing.remove(&from);
                self.open_if_recovered(env, slot);
            }
        }
    }

    fn open_if_recovered(&mut self, env: &mut Env, slot: Slot) {
        if let Some(owned) = self.owned.get(&slot)
            && let SlotPhase::Recovering { missing, .. } = &owned.phase
            && (missing.is_empty() || env.planted.is(Bug::OpenSlotTooEarly))
        {
            self.open(env, slot);
        }
    }

    /// Opens a slot and handles the questions queued for it.
    fn open(&mut self, env: &mut Env, slot: Slot) {
        let owned = self.slot(slot);
        let queue = owned.take_queue();
        owned.phase = SlotPhase::Open;
        self.closed.remove(&slot);
        for question in queue {
            match question {
                Question::Pass(message) => self
                    .pass_to_host(env, message)
                    .expect("a closed slot queues no more messages than may be held for one actor"),
                Question::Ask(from, body) => self.answer(env, from, body),
            }
        }
    }
}

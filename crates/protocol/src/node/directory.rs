//! The directory slots that this node owns: where actors are, who may host them next, and how a slot changes hands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elastin_types::{ActivationEpoch, ActorId, CallError, Message, NodeId, NotDelivered, Overloaded, SlotEpoch};

use super::Node;
use crate::bug::Bug;
use crate::hosted::{Hosted, InStep, OutStep, Phase};
use crate::slots::{OwnedSlot, Placing, Question, SlotPhase, Whereabouts};
use crate::{Body, Command, DirectoryBody, Entry, Slot, View};

/// How often placement is asked about one actor before its callers are told that there is no place: an answer may name a
/// node that has just died, but not for ever.
const PLACEMENTS_MAX: u32 = 4;
/// Directory entries in one frame: some tens of kilobytes.
const ENTRIES_PER_FRAME: usize = 512;
/// Slots that are handed over together. They open together, so a few large ones should not keep many small ones closed.
const SLOTS_PER_FRAME: usize = 64;

/// What goes to a slot's new owner.
#[derive(Default)]
struct Given {
    slots: Vec<(Slot, SlotEpoch)>,
    entries: Vec<Entry>,
    waiting: Vec<Message>,
}

impl Given {
    fn take_from(&mut self, owned: OwnedSlot) {
        let queue = match owned.phase {
            SlotPhase::Open => VecDeque::new(),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => queue,
        };
        // Whoever asked something asks the new owner by itself.
        self.waiting
            .extend(queue.into_iter().filter_map(|question| match question {
                Question::Pass(message) => Some(message),
                Question::Ask(..) => None,
            }));
        for (actor, whereabouts) in owned.entries {
            match whereabouts {
                Whereabouts::Hosted {
                    node,
                    epoch,
                    attempts_void,
                } => self.entries.push(Entry {
                    actor,
                    node,
                    epoch,
                    attempts_void,
                }),
                Whereabouts::Placing(placing) => self.waiting.extend(placing.held),
            }
        }
    }
}

impl Node {
    /// A message came to be passed on to its actor; to the owner of the slot, if that is another node by now.
    pub(super) fn ask_directory(&mut self, message: Message) {
        let owner = self.links.directory_of(&message.target);
        if owner != self.links.me {
            self.say_passed_on(&message, owner);
            let epoch = None;
            self.links.say(owner, Body::Message { message, epoch });
            return;
        }
        let slot = Slot::of(&message.target);
        let owned = self.slots.get_mut(&slot).expect("an owner has its slot");
        match &mut owned.phase {
            SlotPhase::Open => self.pass_to_host(message),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => {
                if queue.len() < self.links.limits.held_per_actor {
                    queue.push_back(Question::Pass(message));
                } else {
                    self.turn_away(message, CallError::Overloaded(Overloaded::Node));
                }
            }
        }
    }

    fn say_passed_on(&mut self, message: &Message, to: NodeId) {
        let (actor, call) = (message.target.clone(), message.header.call);
        self.links.say(call.origin, Body::PassedOn { actor, call, to });
    }

    fn pass(&mut self, message: Message, to: NodeId, epoch: ActivationEpoch) {
        self.say_passed_on(&message, to);
        self.links.say(to, Body::Passed { message, epoch });
    }

    fn slot_queue(&mut self, slot: Slot) -> &mut VecDeque<Question> {
        match &mut self.slots.get_mut(&slot).expect("the caller has it").phase {
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => queue,
            SlotPhase::Open => unreachable!("only called for a closed slot"),
        }
    }

    fn entry(&mut self, actor: &ActorId) -> Option<&mut Whereabouts> {
        self.slots.get_mut(&Slot::of(actor))?.entries.get_mut(actor)
    }

    /// The node that an actor is on, as the part of the directory that this node owns has it.
    pub fn host_of(&self, actor: &ActorId) -> Option<NodeId> {
        match self.slots.get(&Slot::of(actor))?.entries.get(actor)? {
            Whereabouts::Hosted { node, .. } => Some(*node),
            Whereabouts::Placing(_) => None,
        }
    }

    /// Passes a message on to where the actor is, or finds a place for it first.
    fn pass_to_host(&mut self, message: Message) {
        let held_max = self.links.limits.held_per_actor;
        match self.entry(&message.target) {
            Some(Whereabouts::Hosted { node, epoch, .. }) => {
                let (node, epoch) = (*node, *epoch);
                if !self.links.is_dead(node) {
                    return self.pass(message, node, epoch);
                }
            }
            Some(Whereabouts::Placing(placing)) => {
                if placing.held.len() < held_max {
                    placing.held.push_back(message);
                } else {
                    self.turn_away(message, CallError::Overloaded(Overloaded::Actor));
                }
                return;
            }
            None => {}
        }
        let actor = message.target.clone();
        let mut placing = Box::new(Placing::default());
        placing.held.push_back(message);
        let owned = self.slots.get_mut(&Slot::of(&actor)).expect("the caller has it");
        owned.entries.insert(actor.clone(), Whereabouts::Placing(placing));
        self.ask_placement(&actor);
    }

    /// Asks where an actor should go that messages wait for.
    fn ask_placement(&mut self, actor: &ActorId) {
        let Some(Whereabouts::Placing(placing)) = self.entry(actor) else {
            unreachable!("only called for an actor without a place");
        };
        placing.asked += 1;
        let first = &placing.held.front().expect("somebody sent to it").header;
        let command = Command::NeedPlacement {
            actor: actor.clone(),
            caller: first.caller.clone(),
            caller_node: first.call.origin,
        };
        self.links.command(command);
    }

    /// Placement has answered.
    pub(super) fn on_placed(&mut self, actor: ActorId, node: Option<NodeId>) {
        let Some(Whereabouts::Placing(placing)) = self.entry(&actor) else {
            // The slot went to another owner, who asks for itself.
            return;
        };
        let asked = placing.asked;
        let held = std::mem::take(&mut placing.held);
        let slot = Slot::of(&actor);
        match node {
            Some(node) if self.links.view().may_take_actors(node) => {
                let owned = self.slots.get_mut(&slot).expect("it has the entry");
                let epoch = owned.grant();
                let whereabouts = Whereabouts::Hosted {
                    node,
                    epoch,
                    attempts_void: 0,
                };
                owned.entries.insert(actor.clone(), whereabouts);
                self.links
                    .say(node, Body::Directory(DirectoryBody::Grant { actor, epoch }));
                for message in held {
                    self.pass(message, node, epoch);
                }
            }
            Some(_) if asked < PLACEMENTS_MAX => {
                if let Some(Whereabouts::Placing(placing)) = self.entry(&actor) {
                    placing.held = held;
                }
                self.ask_placement(&actor);
            }
            _ => {
                let owned = self.slots.get_mut(&slot).expect("it has the entry");
                owned.entries.remove(&actor);
                for message in held {
                    self.turn_away(message, CallError::NotDelivered(NotDelivered::NoPlace));
                }
            }
        }
    }

    /// A node asks something of a slot's owner.
    pub(super) fn on_question(&mut self, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::HandOver { slots, entries, last } => self.on_hand_over(slots, entries, last),
            DirectoryBody::Recovered { entries, done } => self.on_recovered(from, entries, done),
            DirectoryBody::Ended { ref actor, .. }
            | DirectoryBody::Commit { ref actor, .. }
            | DirectoryBody::Abort { ref actor, .. } => {
                let slot = Slot::of(actor);
                match self.slots.get_mut(&slot).map(|owned| &mut owned.phase) {
                    // Whoever asked finds the new owner by itself, as soon as it has this node's view.
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
            | DirectoryBody::Recover { .. } => unreachable!("these are for hosts"),
        }
    }

    fn answer(&mut self, from: NodeId, question: DirectoryBody) {
        match question {
            DirectoryBody::Ended { actor, epoch } => self.on_ended(from, actor, epoch),
            DirectoryBody::Commit {
                actor,
                from: source,
                epoch,
                attempt,
            } => self.on_commit(from, actor, source, epoch, attempt),
            DirectoryBody::Abort { actor, epoch, attempt } => self.on_abort(from, actor, epoch, attempt),
            _ => unreachable!("only questions are answered"),
        }
    }

    /// An activation is over.
    fn on_ended(&mut self, from: NodeId, actor: ActorId, epoch: ActivationEpoch) {
        let over = matches!(self.entry(&actor), Some(Whereabouts::Hosted { node, epoch: now, .. })
            if *node == from && *now == epoch);
        if over {
            let owned = self.slots.get_mut(&Slot::of(&actor)).expect("it has the entry");
            owned.entries.remove(&actor);
        }
        self.links
            .say(from, Body::Directory(DirectoryBody::EndNoted { actor, epoch }));
    }

    /// The target of a move has the image and wants to be the host: the compare-and-swap that decides every move.
    fn on_commit(&mut self, target: NodeId, actor: ActorId, source: NodeId, epoch: ActivationEpoch, attempt: u32) {
        let owned = self.slots.get_mut(&Slot::of(&actor)).expect("the caller has looked");
        let may = matches!(owned.entries.get(&actor), Some(Whereabouts::Hosted { node, epoch: now, attempts_void })
            if *node == source && *now == epoch && attempt >= *attempts_void);
        if !may && !self.links.planted.is(Bug::CommitBlindly) {
            return self.say_decided(target, &actor, epoch, attempt, source);
        }
        let now = owned.grant();
        let whereabouts = Whereabouts::Hosted {
            node: target,
            epoch: now,
            attempts_void: 0,
        };
        owned.entries.insert(actor.clone(), whereabouts);
        self.say_decided(source, &actor, epoch, attempt, source);
        self.say_decided(target, &actor, epoch, attempt, source);
    }

    /// The source of a move wants it called off.
    fn on_abort(&mut self, source: NodeId, actor: ActorId, epoch: ActivationEpoch, attempt: u32) {
        if let Some(Whereabouts::Hosted {
            node,
            epoch: now,
            attempts_void,
        }) = self.entry(&actor)
            && *node == source
            && *now == epoch
        {
            *attempts_void = (*attempts_void).max(attempt + 1);
        }
        self.say_decided(source, &actor, epoch, attempt, source);
    }

    /// Says where an actor is now. If it is nowhere, the activation that was to move is over, and whoever hears it finds
    /// no place named that it could act on.
    fn say_decided(&mut self, to: NodeId, actor: &ActorId, epoch: ActivationEpoch, attempt: u32, source: NodeId) {
        let owned = self.slots.get_mut(&Slot::of(actor)).expect("the caller has looked");
        let by = owned.epoch;
        let (node, now) = match owned.entries.get(actor) {
            Some(Whereabouts::Hosted { node, epoch, .. }) => (*node, *epoch),
            // The activation ended while it was being moved, as far as the directory knows: to the source this means that
            // it must not go on, to the target that it must not begin.
            Some(Whereabouts::Placing(_)) | None => (source, owned.grant()),
        };
        let body = DirectoryBody::Decided {
            actor: actor.clone(),
            epoch,
            attempt,
            node,
            now,
            by,
        };
        self.links.say(to, Body::Directory(body));
    }

    /// Takes the slots that the view gives to this node, and hands over those that it takes away.
    pub(super) fn update_slots(&mut self) {
        let view = self.links.view().clone();
        let mut given: BTreeMap<(NodeId, bool), Given> = BTreeMap::new();
        for slot in Slot::all() {
            let owner = view.slots.owner(slot);
            if owner.node == self.links.me && self.slots.get(&slot).is_some_and(|owned| owned.epoch == owner.epoch) {
                self.look_after_closed(slot, &view);
                continue;
            }
            if let Some(owned) = self.slots.remove(&slot) {
                self.recovery_wanted.remove(&slot);
                let given = given.entry((owner.node, owned.is_open())).or_default();
                given.slots.push((slot, owner.epoch));
                given.take_from(owned);
            } else if owner.previous == Some(self.links.me) && self.handed_over.get(&slot) < Some(&owner.epoch) {
                // The slot came and went between two views of this node, and the new owner waits for a hand-over.
                given
                    .entry((owner.node, false))
                    .or_default()
                    .slots
                    .push((slot, owner.epoch));
            }
            if owner.node == self.links.me {
                self.take_slot(slot, owner.epoch, owner.previous, &view);
            }
        }
        for ((to, known), given) in given {
            self.hand_over(to, known, given);
        }
        self.ask_for_recovery();
    }

    fn take_slot(&mut self, slot: Slot, epoch: SlotEpoch, previous: Option<NodeId>, view: &View) {
        let phase = match previous {
            None => SlotPhase::Open,
            Some(from) if !view.is_dead(from) && from != self.links.me => SlotPhase::Awaiting {
                from,
                queue: VecDeque::new(),
            },
            Some(_) => self.recovering(VecDeque::new(), slot),
        };
        self.slots.insert(slot, OwnedSlot::new(epoch, phase));
    }

    fn recovering(&mut self, queue: VecDeque<Question>, slot: Slot) -> SlotPhase {
        self.recovery_wanted.insert(slot);
        let missing = self.links.view().members.iter().filter(|(_, member)| member.hosts);
        SlotPhase::Recovering {
            missing: missing.map(|(node, _)| *node).collect(),
            queue,
        }
    }

    /// Sends one question to each node for all slots that must be recovered.
    fn ask_for_recovery(&mut self) {
        let wanted = std::mem::take(&mut self.recovery_wanted);
        if wanted.is_empty() {
            return;
        }
        let slots: Vec<(Slot, SlotEpoch)> = wanted.iter().map(|slot| (*slot, self.slots[slot].epoch)).collect();
        let members = self.links.view().members.clone();
        for (node, _) in members.iter().filter(|(_, member)| member.hosts) {
            let slots = slots.clone();
            self.links.say(*node, Body::Directory(DirectoryBody::Recover { slots }));
        }
        for slot in wanted {
            self.open_if_recovered(slot);
        }
    }

    /// A slot that is not open may wait for somebody who has died.
    fn look_after_closed(&mut self, slot: Slot, view: &View) {
        let owned = self.slots.get_mut(&slot).expect("the caller has it");
        match &mut owned.phase {
            SlotPhase::Open => {}
            SlotPhase::Awaiting { from, queue } if view.is_dead(*from) => {
                let queue = std::mem::take(queue);
                owned.entries.clear();
                let phase = self.recovering(queue, slot);
                self.slots.get_mut(&slot).expect("it was there").phase = phase;
            }
            SlotPhase::Awaiting { .. } => {}
            SlotPhase::Recovering { missing, .. } => {
                missing.retain(|node| !view.is_dead(*node));
                self.open_if_recovered(slot);
            }
        }
    }

    /// Gives slots to their new owner: what is known of them first, then the messages that wait in them.
    fn hand_over(&mut self, to: NodeId, known: bool, given: Given) {
        let Given {
            slots,
            mut entries,
            waiting,
        } = given;
        if self.links.planted.is(Bug::HandOverNothing) {
            entries.clear();
        }
        if to != self.links.me {
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
            self.links.say(to, Body::Directory(body));
            if rest.is_empty() {
                return;
            }
            entries = rest;
        }
    }

    /// The previous owner gives up slots.
    fn on_hand_over(&mut self, slots: Vec<(Slot, SlotEpoch)>, mut entries: Vec<Entry>, last: Option<bool>) {
        for (slot, epoch) in slots {
            let (now, later): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|entry| Slot::of(&entry.actor) == slot);
            entries = later;
            self.take_over(slot, epoch, now, last);
        }
        self.ask_for_recovery();
    }

    fn take_over(&mut self, slot: Slot, epoch: SlotEpoch, entries: Vec<Entry>, last: Option<bool>) {
        let owner = self.links.view().slots.owner(slot);
        if owner.node != self.links.me {
            // The slot went on to another owner, who may be waiting for just this.
            let slots = vec![(slot, owner.epoch)];
            let body = DirectoryBody::HandOver { slots, entries, last };
            self.links.say(owner.node, Body::Directory(body));
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
                self.slots.get_mut(&slot).expect("it was there").phase = phase;
            }
        }
    }

    /// A node has said what it hosts.
    fn on_recovered(&mut self, from: NodeId, entries: Vec<Entry>, done: Vec<(Slot, SlotEpoch)>) {
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
            && (missing.is_empty() || self.links.planted.is(Bug::OpenSlotTooEarly))
        {
            let queue = std::mem::take(queue);
            self.open_slot(slot, queue);
        }
    }

    /// From now on this node answers for the slot; first those who have waited.
    fn open_slot(&mut self, slot: Slot, queue: VecDeque<Question>) {
        self.slots.get_mut(&slot).expect("the caller has it").phase = SlotPhase::Open;
        for question in queue {
            match question {
                Question::Pass(message) => self.pass_to_host(message),
                Question::Ask(from, body) => self.answer(from, body),
            }
        }
    }

    /// The new owner of slots asks what is here. After the answer, earlier owners are not listened to.
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
            .filter_map(|(actor, hosted)| self.vouch_for(actor, hosted))
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
            self.links.say(from, Body::Directory(body));
        }
        self.hosted_follow_owners(|actor| wanted.contains(&Slot::of(actor)));
    }

    /// What this node knows of an actor that only it may know.
    fn vouch_for(&self, actor: &ActorId, hosted: &Hosted) -> Option<Entry> {
        let here = |epoch, attempts_void| Entry {
            actor: actor.clone(),
            node: self.links.me,
            epoch,
            attempts_void,
        };
        match &hosted.phase {
            Phase::Activating | Phase::Closed | Phase::Active => Some(here(hosted.epoch, hosted.attempts)),
            Phase::MovingOut(out) => {
                let void = match out.step {
                    OutStep::Aborting(_) => out.attempt + 1,
                    _ => out.attempt,
                };
                Some(here(hosted.epoch, void))
            }
            Phase::MovingIn(incoming) => match incoming.step {
                InStep::Committed(epoch) => Some(here(epoch, 0)),
                _ => None,
            },
            Phase::Releasing(releasing) => Some(Entry {
                actor: actor.clone(),
                node: releasing.to,
                epoch: releasing.to_epoch,
                attempts_void: 0,
            }),
            Phase::Departed(departed) if departed.until.is_none() => Some(Entry {
                actor: actor.clone(),
                node: departed.to,
                epoch: departed.to_epoch,
                attempts_void: 0,
            }),
            Phase::Departed(_) | Phase::Expected | Phase::Leaving => None,
        }
    }
}

//! The directory slots that a node owns.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, ActorId, Message, NodeId, SlotEpoch};

use crate::compact_map::CompactMap;
use crate::{DirectoryBody, Entry};

/// One slot, at its owner.
#[derive(Debug)]
pub(crate) struct OwnedSlot {
    /// This node's epoch as the owner.
    pub(crate) epoch: SlotEpoch,
    /// Counts the activations granted in this epoch.
    pub(crate) counter: u32,
    /// Whether questions are answered.
    pub(crate) phase: SlotPhase,
    /// Where the actors are.
    pub(crate) entries: CompactMap<ActorId, Whereabouts>,
}

/// Whether a slot's owner may answer.
#[derive(Debug)]
pub(crate) enum SlotPhase {
    /// It may.
    Open,
    /// The previous owner is handing over.
    Awaiting {
        /// The previous owner.
        from: NodeId,
        /// Who asked meanwhile.
        queue: VecDeque<Question>,
    },
    /// The previous owner is dead: every node is being asked what it hosts.
    Recovering {
        /// Who has not answered.
        missing: BTreeSet<NodeId>,
        /// Who asked meanwhile.
        queue: VecDeque<Question>,
    },
}

/// What waits for a slot to open.
#[derive(Debug)]
pub(crate) enum Question {
    /// A message that is to be passed on.
    Pass(Arc<Message>),
    /// A request of a node.
    Ask(NodeId, DirectoryBody),
}

/// Where an actor is.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// On a node. If the node is dead, nowhere.
    Hosted {
        node: NodeId,
        epoch: ActivationEpoch,
        /// Attempts to move this activation below this number can't be committed any more.
        attempts_void: u32,
    },
    /// It has been asked where it should go. Boxed, because nearly all actors are somewhere.
    Placing(Box<Placing>),
}

/// An actor without a place.
#[derive(Debug)]
pub(crate) struct Placing {
    /// The messages that wait for it, in order.
    pub(crate) held: VecDeque<Arc<Message>>,
}

impl OwnedSlot {
    pub(crate) fn new(epoch: SlotEpoch, phase: SlotPhase) -> Self {
        Self {
            epoch,
            counter: 0,
            phase,
            entries: CompactMap::default(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, SlotPhase::Open)
    }

    /// The epoch of the next activation that this owner grants: higher than all before, because the slot epoch is higher
    /// than that of earlier owners.
    pub(crate) fn grant(&mut self) -> ActivationEpoch {
        let last = ActivationEpoch {
            slot: self.epoch,
            counter: self.counter,
        };
        let next = last.next();
        self.counter = next.counter;
        next
    }

    /// Learns from another node where an actor is. Of two words the one about the later activation counts.
    pub(crate) fn learn(&mut self, entry: Entry) {
        let known = match self.entries.get(&entry.actor) {
            Some(Whereabouts::Hosted {
                epoch, attempts_void, ..
            }) => Some((*epoch, *attempts_void)),
            _ => None,
        };
        if known.is_some_and(|known| known >= (entry.epoch, entry.attempts_void)) {
            return;
        }
        let Entry {
            actor,
            node,
            epoch,
            attempts_void,
        } = entry;
        self.entries.insert(
            actor,
            Whereabouts::Hosted {
                node,
                epoch,
                attempts_void,
            },
        );
    }
}

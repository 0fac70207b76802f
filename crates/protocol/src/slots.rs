//! The directory slots that a node owns.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, Message, NodeId, SlotEpoch};

use crate::collections::actor_map::ActorMap;
use crate::directory_entry::{DirectoryEntry, HostedAt};
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
    pub(crate) entries: ActorMap<DirectoryEntry>,
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

impl OwnedSlot {
    pub(crate) fn new(epoch: SlotEpoch, phase: SlotPhase) -> Self {
        Self {
            epoch,
            counter: 0,
            phase,
            entries: ActorMap::default(),
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
        let known = self.entries.get(&entry.actor).and_then(DirectoryEntry::hosted_at);
        if known.is_some_and(|known| (known.epoch, known.attempts_void) >= (entry.epoch, entry.attempts_void)) {
            return;
        }
        let at = HostedAt {
            node: entry.node,
            epoch: entry.epoch,
            attempts_void: entry.attempts_void,
        };
        self.entries.insert(&entry.actor, DirectoryEntry::hosted(at));
    }
}

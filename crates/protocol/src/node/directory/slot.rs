//! Directory slots owned by a node.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use elastin_types::{ActivationEpoch, Message, NodeId, SlotEpoch};

use super::entry::{DirectoryEntry, HostedAt};
use crate::collections::actor_map::ActorMap;
use crate::{DirectoryBody, Entry};

/// A slot, at its owner.
#[derive(Debug)]
pub(crate) struct OwnedSlot {
    /// This node's epoch as the owner.
    pub(crate) epoch: SlotEpoch,
    /// Number of activations granted in this epoch.
    pub(crate) counter: u32,
    /// Whether the owner answers questions.
    pub(crate) phase: SlotPhase,
    /// Locations of actors.
    pub(crate) entries: ActorMap<DirectoryEntry>,
}

/// Whether a slot's owner may answer questions.
#[derive(Debug)]
pub(crate) enum SlotPhase {
    /// It may.
    Open,
    /// The previous owner is handing over.
    Awaiting {
        /// The previous owner.
        from: NodeId,
        /// Questions received meanwhile.
        queue: VecDeque<Question>,
    },
    /// The previous owner is dead: all hosts are being asked for their activations.
    Recovering {
        /// Hosts that have not answered.
        missing: BTreeSet<NodeId>,
        /// Questions received meanwhile.
        queue: VecDeque<Question>,
    },
}

/// A question queued until a slot opens.
#[derive(Debug)]
pub(crate) enum Question {
    /// A message to forward.
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

    /// Whether the previous owner is handing over.
    pub(crate) fn is_awaiting(&self) -> bool {
        matches!(self.phase, SlotPhase::Awaiting { .. })
    }

    /// Takes the questions queued until the slot opens.
    pub(crate) fn take_queue(&mut self) -> VecDeque<Question> {
        match &mut self.phase {
            SlotPhase::Open => VecDeque::new(),
            SlotPhase::Awaiting { queue, .. } | SlotPhase::Recovering { queue, .. } => std::mem::take(queue),
        }
    }

    /// Allocates the epoch of the next activation that this owner grants. It exceeds all earlier ones, because the slot
    /// epoch exceeds that of earlier owners.
    pub(crate) fn grant(&mut self) -> ActivationEpoch {
        let last = ActivationEpoch {
            slot: self.epoch,
            counter: self.counter,
        };
        let next = last.next();
        self.counter = next.counter;
        next
    }

    /// Merges an entry reported by another node. The later of two activations wins.
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

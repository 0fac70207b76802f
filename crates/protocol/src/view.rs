//! Membership views and the ownership of directory slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use elastin_types::{ActorId, Key, NodeId, SlotEpoch};
use serde::{Deserialize, Serialize};

use crate::{Map, MoveError};

/// Number of hash slots of the directory. Enough that 1,000 nodes get an even share, few enough that the whole table
/// fits in one small value of the coordination service.
pub const SLOT_COUNT: usize = 4096;

/// A part of the directory: all actors whose id hashes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct Slot(u16);

/// An invalid slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slot {0} is out of range: there are {SLOT_COUNT} slots")]
pub struct NotASlot(u16);

// INVARIANT: every slot number is below `SLOT_COUNT`, even if a peer sent it, because tables are indexed by it.
impl TryFrom<u16> for Slot {
    type Error = NotASlot;

    fn try_from(number: u16) -> Result<Self, NotASlot> {
        match usize::from(number) < SLOT_COUNT {
            true => Ok(Self(number)),
            false => Err(NotASlot(number)),
        }
    }
}

impl Slot {
    /// The slot of an actor. The hash is the same on every machine and in every build, because nodes must agree on it.
    pub fn of(actor: &ActorId) -> Self {
        let mut hash = Fnv::default();
        hash.write(&actor.tenant.0.to_le_bytes());
        hash.write(&actor.kind.number().to_le_bytes());
        match &actor.key {
            Key::U64(number) => hash.write(&number.to_le_bytes()),
            Key::Uuid(bytes) => hash.write(bytes),
            Key::Str(text) => hash.write(text.as_bytes()),
        }
        Self((hash.finish() % SLOT_COUNT as u64) as u16)
    }

    /// The slot with this number.
    ///
    /// # Panics If there is no such slot.
    pub fn new(index: usize) -> Self {
        assert!(
            index < SLOT_COUNT,
            "slot {index} is out of range: there are {SLOT_COUNT} slots"
        );
        Self(index as u16)
    }

    /// All slots.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..SLOT_COUNT as u16).map(Slot)
    }

    /// The slot's number, from 0 to [`SLOT_COUNT`] - 1.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// FNV-1a, 64 bits, with a final mix so that small numbers spread over all slots.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    }
}

/// The owner of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotOwner {
    /// The node that keeps the slot's directory entries.
    pub node: NodeId,
    /// The owner's epoch, which grows with every change of ownership.
    pub epoch: SlotEpoch,
    /// The previous owner. If it is still a member it hands the slot over; otherwise the new owner recovers the entries
    /// from all hosts.
    pub previous: Option<NodeId>,
}

/// The owner of every slot. Encoded, it takes two bytes per slot and a few for each owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PackedTable", into = "PackedTable")]
pub struct SlotTable {
    owners: Arc<[SlotOwner]>,
}

/// Encoded form of a table: slots have few distinct owners.
#[derive(Serialize, Deserialize)]
struct PackedTable {
    owners: Vec<SlotOwner>,
    /// The index of each slot's owner, two bytes each, little-endian.
    slots: Bytes,
}

impl From<SlotTable> for PackedTable {
    fn from(table: SlotTable) -> Self {
        let mut numbers: Map<SlotOwner, u16> = Map::default();
        let mut owners = Vec::new();
        let mut slots = Vec::with_capacity(2 * SLOT_COUNT);
        for owner in table.owners.iter() {
            let number = *numbers.entry(*owner).or_insert_with(|| {
                owners.push(*owner);
                (owners.len() - 1) as u16
            });
            slots.extend_from_slice(&number.to_le_bytes());
        }
        let slots = slots.into();
        PackedTable { owners, slots }
    }
}

/// The error for bytes that do not encode a slot table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a slot table")]
pub struct NotASlotTable;

impl TryFrom<PackedTable> for SlotTable {
    type Error = NotASlotTable;

    fn try_from(packed: PackedTable) -> Result<Self, NotASlotTable> {
        if packed.slots.len() != 2 * SLOT_COUNT {
            return Err(NotASlotTable);
        }
        let numbers = packed.slots.chunks_exact(2);
        let owner = |bytes: &[u8]| packed.owners.get(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
        let owners = numbers.map(|bytes| owner(bytes).copied().ok_or(NotASlotTable));
        Ok(Self {
            owners: owners.collect::<Result<_, _>>()?,
        })
    }
}

impl SlotTable {
    /// A table in which one node owns all slots, such as the supervisor of an embedded cluster.
    pub fn owned_by(node: NodeId, epoch: SlotEpoch) -> Self {
        let owner = SlotOwner {
            node,
            epoch,
            previous: None,
        };
        Self {
            owners: vec![owner; SLOT_COUNT].into(),
        }
    }

    /// The first table of a cluster: the nodes share the slots evenly, and no slot has a previous owner.
    ///
    /// # Panics If there is no node.
    pub fn shared_by(nodes: &[NodeId], epoch: SlotEpoch) -> Self {
        assert!(!nodes.is_empty(), "the directory needs an owner");
        let owner = |slot: Slot| SlotOwner {
            node: nodes[slot.index() % nodes.len()],
            epoch,
            previous: None,
        };
        Self {
            owners: Slot::all().map(owner).collect(),
        }
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: Slot) -> SlotOwner {
        self.owners[slot.index()]
    }

    /// Whether a node owns any slot.
    pub fn is_owner(&self, node: NodeId) -> bool {
        self.owners.iter().any(|owner| owner.node == node)
    }

    /// Whether a node owns any slot, or is the previous owner of one.
    fn is_or_was_owner(&self, node: NodeId) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| owner.node == node || owner.previous == Some(node))
    }

    /// The slots whose owner or owner epoch differs from an earlier table.
    pub fn changed_since<'a>(&'a self, before: &'a SlotTable) -> impl Iterator<Item = Slot> + 'a {
        let same = Arc::ptr_eq(&self.owners, &before.owners);
        let all = if same { 0 } else { SLOT_COUNT };
        (0..all)
            .map(Slot::new)
            .filter(|slot| self.owner(*slot) != before.owner(*slot))
    }

    /// The table after `from` has handed the given number of its slots over to `to`.
    pub fn handing_over(&self, from: NodeId, to: NodeId, slots: usize) -> Self {
        let mut owners = self.owners.to_vec();
        for owner in owners.iter_mut().filter(|owner| owner.node == from).take(slots) {
            *owner = SlotOwner {
                node: to,
                epoch: SlotEpoch(owner.epoch.0 + 1),
                previous: Some(from),
            };
        }
        Self { owners: owners.into() }
    }

    /// The table for a changed set of owners, or `None` if nothing changes or `owning` is empty.
    ///
    /// Every owner gets an even share and as few slots as possible change owners, with a higher epoch. The result
    /// depends only on the input, so all nodes compute the same table.
    pub fn rebalanced(&self, owning: &[NodeId]) -> Option<Self> {
        let mut share: BTreeMap<NodeId, usize> = owning.iter().map(|node| (*node, 0)).collect();
        if share.is_empty() {
            return None;
        }
        let most = SLOT_COUNT.div_ceil(share.len());
        let full_shares = SLOT_COUNT - (most - 1) * share.len();
        let mut at_most = 0;
        let mut unassigned = Vec::new();
        for (index, owner) in self.owners.iter().enumerate() {
            match share.get_mut(&owner.node) {
                // A node keeps its slots up to its even share; only some nodes may have the rounded-up share.
                Some(count) if *count < most - 1 => *count += 1,
                Some(count) if *count == most - 1 && at_most < full_shares => {
                    *count += 1;
                    at_most += 1;
                }
                _ => unassigned.push(index),
            }
        }
        if unassigned.is_empty() {
            return None;
        }
        let mut owners = self.owners.to_vec();
        for index in unassigned {
            let (node, count) = share
                .iter_mut()
                .min_by_key(|(_, count)| **count)
                .expect("there is at least one owner");
            *count += 1;
            let before = owners[index];
            owners[index] = SlotOwner {
                node: *node,
                epoch: SlotEpoch(before.epoch.0 + 1),
                previous: Some(before.node),
            };
        }
        Some(Self { owners: owners.into() })
    }
}

/// Capabilities of a member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Whether it hosts actors. A client does not, nor does a supervisor that only keeps the directory.
    pub hosts: bool,
    /// Whether it is draining: it keeps its actors but accepts no new ones.
    pub draining: bool,
}

impl Member {
    /// A server that accepts actors.
    pub const SERVER: Member = Member {
        hosts: true,
        draining: false,
    };
    /// A member that hosts no actors.
    pub const CLIENT: Member = Member {
        hosts: false,
        draining: false,
    };
}

/// The cluster as of one revision of the coordination service.
///
/// INVARIANT: a node that was a member and is missing here has stopped. Its lease has expired and the hold has passed. It
/// starts no turn, and none of its replies or writes can take effect any more. Every take-over relies on this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The revision, which only grows. A node whose id is at most this number and that is not a member is dead. A node
    /// with a higher id has joined since.
    pub revision: u64,
    /// All members.
    pub members: Arc<BTreeMap<NodeId, Member>>,
    /// The owners of directory slots. Owners that are not members are about to be replaced.
    pub slots: SlotTable,
}

impl View {
    /// Whether a node has stopped for good. A node that is too new for this view has not.
    pub fn is_dead(&self, node: NodeId) -> bool {
        node.0 <= self.revision && !self.members.contains_key(&node)
    }

    /// Whether a node accepts new actors.
    pub fn takes_actors(&self, node: NodeId) -> bool {
        self.members
            .get(&node)
            .is_some_and(|member| member.hosts && !member.draining)
    }

    /// Whether a node may accept new actors, as far as this view can tell: a node that is too new for it may.
    pub fn may_take_actors(&self, node: NodeId) -> bool {
        node.0 > self.revision || self.takes_actors(node)
    }

    /// Checks whether a node accepts new actors.
    pub(crate) fn check_takes_actors(&self, node: NodeId) -> Result<(), MoveError> {
        if self.takes_actors(node) {
            Ok(())
        } else if self.may_take_actors(node) {
            Err(MoveError::TargetTooNew)
        } else {
            Err(MoveError::TargetUnfit)
        }
    }

    /// Whether a node hosts actors, or owns or previously owned a directory slot: a client does neither.
    pub(crate) fn is_server_or_owner(&self, node: NodeId) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(|member| member.hosts || self.slots.is_or_was_owner(node))
    }

    /// A node that accepts new actors, if there is one. The choice varies over the slots of one owner.
    pub(crate) fn any_place(&self, slot: Slot) -> Option<NodeId> {
        let takers: Vec<NodeId> = self
            .members
            .keys()
            .copied()
            .filter(|node| self.takes_actors(*node))
            .collect();
        // An owner may have every n-th slot, so the choice must not depend on the index modulo the number of nodes.
        let turn = slot.index() / takers.len().max(1);
        takers.get(turn % takers.len().max(1)).copied()
    }

    /// The owner of the slot of an actor.
    pub fn directory_of(&self, actor: &ActorId) -> SlotOwner {
        self.slots.owner(Slot::of(actor))
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::ActorType;

    use super::*;

    fn count(table: &SlotTable, node: u64) -> usize {
        Slot::all()
            .filter(|slot| table.owner(*slot).node == NodeId(node))
            .count()
    }

    #[test]
    fn the_slot_of_an_actor_never_changes() {
        let folder = ActorType::of("Folder");
        let of = |key: Key| Slot::of(&ActorId::new(folder, key)).index();
        // Nodes of different builds agree on these numbers: a change here splits a cluster.
        assert_eq!([of(7.into()), of("a/b".into()), of([9; 16].into())], [3011, 1914, 3764]);
    }

    #[test]
    fn decoding_an_invalid_slot_fails() {
        let decode = |number: u16| postcard::from_bytes::<Slot>(&postcard::to_stdvec(&number).unwrap());
        assert_eq!(decode(4095), Ok(Slot::new(4095)));
        assert!(decode(4096).is_err());
        assert!(decode(u16::MAX).is_err());
    }

    #[test]
    fn neighbouring_keys_spread_over_the_slots() {
        let folder = ActorType::of("Folder");
        let mut hits = vec![0_u32; SLOT_COUNT];
        for key in 0..16 * SLOT_COUNT as u64 {
            hits[Slot::of(&ActorId::new(folder, key)).index()] += 1;
        }
        assert!(
            hits.iter().all(|hits| (1..=48).contains(hits)),
            "worst: {:?}",
            hits.iter().max()
        );
    }

    #[test]
    fn too_new_targets_differ_from_unfit_ones() {
        let view = View {
            revision: 5,
            members: Arc::new([(NodeId(2), Member::SERVER), (NodeId(3), Member::CLIENT)].into()),
            slots: SlotTable::owned_by(NodeId(2), SlotEpoch(1)),
        };
        let fitness = [2, 3, 4, 6].map(|node| view.check_takes_actors(NodeId(node)));
        let unfit = Err(MoveError::TargetUnfit);
        assert_eq!(fitness, [Ok(()), unfit, unfit, Err(MoveError::TargetTooNew)]);
    }

    #[test]
    fn rebalancing_moves_as_few_slots_as_possible() {
        let one = SlotTable::owned_by(NodeId(1), SlotEpoch(1));
        let three = one.rebalanced(&[NodeId(1), NodeId(2), NodeId(3)]).expect("two joined");
        assert_eq!([1, 2, 3].map(|node| count(&three, node)), [1366, 1365, 1365]);
        assert_eq!(three.rebalanced(&[NodeId(1), NodeId(2), NodeId(3)]), None);

        let two = three.rebalanced(&[NodeId(1), NodeId(3)]).expect("one left");
        assert_eq!([1, 3].map(|node| count(&two, node)), [2048, 2048]);
        for slot in Slot::all() {
            let (before, after) = (three.owner(slot), two.owner(slot));
            if before.node == NodeId(2) {
                assert_eq!((after.epoch.0, after.previous), (before.epoch.0 + 1, Some(NodeId(2))));
            } else {
                assert_eq!(before, after);
            }
        }
        assert_eq!(two.rebalanced(&[]), None);
    }
}

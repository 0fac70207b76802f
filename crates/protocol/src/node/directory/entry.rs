//! The directory entry of an actor.

use std::collections::VecDeque;
use std::sync::Arc;

use elastin_types::{ActivationEpoch, Message, NodeId};

/// The location of an actor. It takes 16 bytes, because a directory has millions of them.
#[derive(Debug)]
pub(crate) struct DirectoryEntry(Packed);

/// The host of an actor. If that node is dead, the actor has no activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostedAt {
    pub(crate) node: NodeId,
    pub(crate) epoch: ActivationEpoch,
    /// Attempts to move this activation below this number cannot be committed any more.
    pub(crate) attempts_void: u32,
}

/// An actor that is being placed.
#[derive(Debug)]
pub(crate) struct Placing {
    /// Messages held for it, in order.
    pub(crate) held: VecDeque<Arc<Message>>,
}

#[derive(Debug)]
enum Packed {
    /// On a node whose id has at most 48 bits, with few aborted attempts to move it.
    Hosted {
        attempts_void: u8,
        node_high: u16,
        node_low: u32,
        epoch: ActivationEpoch,
    },
    /// On a node, with larger numbers.
    HostedAt(Box<HostedAt>),
    /// A placement has been requested.
    Placing(Box<Placing>),
}

impl DirectoryEntry {
    pub(crate) fn hosted(at: HostedAt) -> Self {
        let NodeId(node) = at.node;
        let (high, low) = (u16::try_from(node >> 32), node as u32);
        Self(match (high, u8::try_from(at.attempts_void)) {
            (Ok(node_high), Ok(attempts_void)) => Packed::Hosted {
                attempts_void,
                node_high,
                node_low: low,
                epoch: at.epoch,
            },
            _ => Packed::HostedAt(Box::new(at)),
        })
    }

    /// An actor that is being placed, with the messages held for it.
    pub(crate) fn placing(held: VecDeque<Arc<Message>>) -> Self {
        Self(Packed::Placing(Box::new(Placing { held })))
    }

    /// The actor's host; `None` while it is being placed.
    pub(crate) fn hosted_at(&self) -> Option<HostedAt> {
        match &self.0 {
            Packed::Hosted {
                attempts_void,
                node_high,
                node_low,
                epoch,
            } => Some(HostedAt {
                node: NodeId(u64::from(*node_high) << 32 | u64::from(*node_low)),
                epoch: *epoch,
                attempts_void: u32::from(*attempts_void),
            }),
            Packed::HostedAt(at) => Some(**at),
            Packed::Placing(_) => None,
        }
    }

    /// The pending placement, if the actor is being placed.
    pub(crate) fn as_placing(&mut self) -> Option<&mut Placing> {
        match &mut self.0 {
            Packed::Placing(placing) => Some(placing),
            Packed::Hosted { .. } | Packed::HostedAt(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_16_bytes() {
        assert_eq!(size_of::<DirectoryEntry>(), 16);
    }

    #[test]
    fn large_and_small_numbers_round_trip() {
        let epoch = ActivationEpoch::default().next();
        for node in [0, 1, u64::from(u32::MAX), 0xabcd_1234_5678, 1 << 48, u64::MAX] {
            for attempts_void in [0, 1, 255, 256, u32::MAX] {
                let node = NodeId(node);
                let at = HostedAt {
                    node,
                    epoch,
                    attempts_void,
                };
                let mut entry = DirectoryEntry::hosted(at);
                assert_eq!(entry.hosted_at(), Some(at));
                assert!(entry.as_placing().is_none());
            }
        }
        let mut placing = DirectoryEntry::placing(VecDeque::new());
        assert_eq!(placing.hosted_at(), None);
        assert!(placing.as_placing().is_some());
    }
}

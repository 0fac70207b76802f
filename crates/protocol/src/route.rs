//! Where a node sends messages for an actor, and when it may change that without one message overtaking another.
//!
//! Messages to an actor take one path at a time: straight to its host, or to the owner of its directory slot, which passes
//! them on. A path may change only when everything sent along the old one has *settled*, that is, has a place in the
//! actor's queue (or was answered or lost). The first hop's acknowledgement says so for messages that it did not pass on.
//! For those that it did, it has said so before acknowledging, and each of them leaves a [`Pass`] until the node that has
//! it confirms.

use std::collections::{BTreeMap, VecDeque};

use elastin_types::{ActivationEpoch, CallId, Caller, Message, NodeId};

/// Where to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To whoever owns the actor's slot.
    Directory,
    /// To its host.
    Host(NodeId, ActivationEpoch),
}

/// The path to one actor.
#[derive(Debug)]
pub(crate) struct Route {
    /// The first hop.
    pub(crate) node: NodeId,
    /// The activation there; none if the node is the slot's owner.
    pub(crate) epoch: Option<ActivationEpoch>,
    /// The number of the last frame sent along this path.
    pub(crate) last: u64,
    /// What is only there while something is unsettled; boxed because for nearly all routes it is not.
    pub(crate) unsettled: Option<Box<Unsettled>>,
}

/// What keeps a route from changing.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Messages that were passed on, by call and hop. Bounded by the frames that may be under way.
    pub(crate) passes: BTreeMap<(CallId, u8), Pass>,
    /// The path to take when everything has settled. While there is one, new messages are held.
    pub(crate) next: Option<Place>,
    /// Messages that wait for it.
    pub(crate) held: VecDeque<Message>,
    /// Whether the first hop was asked to acknowledge at once.
    pub(crate) pinged: bool,
}

/// A message that was passed on and not yet confirmed; or confirmed, and not yet said to have been passed on, because two
/// nodes told us and the second was faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// On its way, or kept by `to`.
    Open {
        /// Who passed it on.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// Who sent it.
        caller: Caller,
        /// If `from` died: when `to` has acknowledged this number, what it has not confirmed was lost on the way.
        void_at: Option<u64>,
    },
    /// Confirmed by this node; the word that it was passed on is still to come.
    Confirmed(NodeId),
}

impl Unsettled {
    /// Notes that a message was passed on; true if its arrival was confirmed already.
    pub(crate) fn open(&mut self, call: CallId, hops: u8, pass: Pass) -> bool {
        let confirmed = matches!(self.passes.insert((call, hops), pass), Some(Pass::Confirmed(_)));
        if confirmed {
            self.passes.remove(&(call, hops));
        }
        confirmed
    }

    /// Notes that a message which was passed on arrived, or went on from there.
    pub(crate) fn close(&mut self, call: CallId, hops: u8, by: NodeId) {
        if let Some(Pass::Open { .. }) = self.passes.insert((call, hops), Pass::Confirmed(by)) {
            self.passes.remove(&(call, hops));
        }
    }

    /// Whether anything is still known to be under way for this call.
    pub(crate) fn has(&self, call: CallId) -> bool {
        self.passes.range((call, 0)..=(call, u8::MAX)).next().is_some()
    }

    /// Whether this says nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.passes.is_empty() && self.next.is_none() && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_close_in_either_order() {
        let call = CallId {
            origin: NodeId(1),
            sequence: 7,
        };
        let (a, b) = (NodeId(2), NodeId(3));
        let pass = || Pass::Open {
            from: a,
            to: b,
            caller: Caller::Client(a),
            void_at: None,
        };
        let mut unsettled = Unsettled::default();
        unsettled.open(call, 1, pass());
        assert!(unsettled.has(call));
        unsettled.close(call, 1, b);
        assert!(unsettled.is_idle());

        unsettled.close(call, 2, b);
        assert!(unsettled.has(call), "confirmed before anybody said that it was passed on");
        unsettled.open(call, 2, pass());
        assert!(unsettled.is_idle());
    }
}

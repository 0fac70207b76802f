//! Authorization of inbound bodies.
//!
//! A client may only call actors. Its claims to host or move actors, or to own directory slots, are ignored. Servers
//! and slot owners trust each other.

use elastin_types::NodeId;

use crate::{Body, View};

/// Whether a peer may send this body. A peer that is too new for the view may only call: its other frames wait for the
/// view they were sent in, which contains the peer.
pub(crate) fn may_send(view: &View, from: NodeId, body: &Body) -> bool {
    match body {
        Body::Ping | Body::ViewIs { .. } => true,
        // A forged origin would make other nodes receive reports about calls that they did not make.
        Body::Message { message, .. } if message.header.call.origin == from => true,
        Body::Message { .. }
        | Body::Passed { .. }
        | Body::PassedOn { .. }
        | Body::Landed { .. }
        | Body::Kept { .. }
        | Body::Returned { .. }
        | Body::Rejected { .. }
        | Body::Reply { .. }
        | Body::Move(_)
        | Body::Directory(_)
        | Body::Leaving
        | Body::Parted => view.is_server_or_owner(from),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elastin_types::{CallId, SlotEpoch};

    use super::*;
    use crate::{Member, SlotTable};

    const SUPERVISOR: NodeId = NodeId(1);
    const SERVER: NodeId = NodeId(2);
    const CLIENT: NodeId = NodeId(3);
    const TOO_NEW: NodeId = NodeId(9);

    fn view(slots: SlotTable) -> View {
        let members = [
            (SUPERVISOR, Member::CLIENT),
            (SERVER, Member::SERVER),
            (CLIENT, Member::CLIENT),
        ];
        View {
            revision: 5,
            members: Arc::new(members.into()),
            slots,
        }
    }

    /// All nodes that may send this body.
    fn authorized_senders(slots: SlotTable, body: &Body) -> Vec<NodeId> {
        let view = view(slots);
        let all = [SUPERVISOR, SERVER, CLIENT, TOO_NEW];
        all.into_iter().filter(|from| may_send(&view, *from, body)).collect()
    }

    #[test]
    fn clients_may_not_send_server_bodies() {
        let supervised = || SlotTable::owned_by(SUPERVISOR, SlotEpoch(1));
        let reply = |call| Body::Reply {
            call,
            outcome: Ok(bytes::Bytes::new()),
        };
        let call = CallId {
            origin: SERVER,
            sequence: 1,
        };
        assert_eq!(
            authorized_senders(supervised(), &Body::Ping),
            [SUPERVISOR, SERVER, CLIENT, TOO_NEW]
        );
        assert_eq!(authorized_senders(supervised(), &Body::Leaving), [SUPERVISOR, SERVER]);
        assert_eq!(authorized_senders(supervised(), &reply(call)), [SUPERVISOR, SERVER]);
        // A node that has just lost its slots still hands them over.
        let handed_over = supervised().rebalanced(&[SERVER]).expect("another owner");
        assert_eq!(authorized_senders(handed_over, &Body::Leaving), [SUPERVISOR, SERVER]);
        let served = SlotTable::owned_by(SERVER, SlotEpoch(1));
        assert_eq!(authorized_senders(served, &Body::Leaving), [SERVER]);
    }
}

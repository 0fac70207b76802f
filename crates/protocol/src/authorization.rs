//! Who may send what. A client calls actors and does nothing else: that it hosts one, moves one or owns a part of the
//! directory is not believed, whatever it says. Servers and owners of slots believe each other.

use elastin_types::NodeId;

use crate::{Body, View};

/// Whether a peer may send this. Whoever is too new for the view may not do more than call: what it says has waited for the
/// view that it was said in, and that view knows it.
pub(crate) fn may_say(view: &View, from: NodeId, body: &Body) -> bool {
    match body {
        Body::Ping | Body::ViewIs { .. } => true,
        // Whoever could name another origin would have others told about calls that they did not make.
        Body::Message { message, .. } if message.header.call.origin == from => true,
        Body::Message { .. }
        | Body::Passed { .. }
        | Body::PassedOn { .. }
        | Body::Landed { .. }
        | Body::Kept { .. }
        | Body::Returned { .. }
        | Body::TurnedAway { .. }
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

    /// Those of all who may send this.
    fn who_may(slots: SlotTable, body: &Body) -> Vec<NodeId> {
        let view = view(slots);
        let all = [SUPERVISOR, SERVER, CLIENT, TOO_NEW];
        all.into_iter().filter(|from| may_say(&view, *from, body)).collect()
    }

    #[test]
    fn what_only_servers_and_owners_say_is_not_believed_of_others() {
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
            who_may(supervised(), &Body::Ping),
            [SUPERVISOR, SERVER, CLIENT, TOO_NEW]
        );
        assert_eq!(who_may(supervised(), &Body::Leaving), [SUPERVISOR, SERVER]);
        assert_eq!(who_may(supervised(), &reply(call)), [SUPERVISOR, SERVER]);
        // Who has just lost its slots hands them over.
        let handed_over = supervised().rebalanced(&[SERVER]).expect("another owner");
        assert_eq!(who_may(handed_over, &Body::Leaving), [SUPERVISOR, SERVER]);
        let served = SlotTable::owned_by(SERVER, SlotEpoch(1));
        assert_eq!(who_may(served, &Body::Leaving), [SERVER]);
    }
}

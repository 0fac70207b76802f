//! Events and commands of the membership state machine.

use elastin_types::{NodeId, Time};

use super::Roster;
use crate::View;
use crate::store::{CoordinationError, CoordinationReply, CoordinationRequest, Revision, WatchBatch};

/// Id of a request, to match its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Id of a watch. Batches of earlier watches are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// Input of a membership.
#[derive(Clone, Debug)]
pub enum MembershipEvent {
    /// A request has completed, however late.
    Answered {
        /// The request.
        request: RequestId,
        /// Its result.
        result: Result<CoordinationReply, CoordinationError>,
    },
    /// A watch has delivered changes, or has ended.
    Watched {
        /// The watch.
        watch: WatchId,
        /// Its changes; an error ends the watch.
        batch: Result<WatchBatch, CoordinationError>,
    },
    /// Starts or stops draining a member.
    Drain {
        /// The member.
        node: NodeId,
        /// Whether it drains.
        draining: bool,
    },
    /// A member does not answer its peers: its lease is revoked, and it is dropped after its hold. If it is alive it is
    /// notified, ends, and may join again.
    Suspect {
        /// The member.
        node: NodeId,
    },
    /// A member's process has certainly stopped: it is dropped without a hold.
    Stopped {
        /// The member.
        node: NodeId,
    },
    /// This node leaves. Its turns must have ended.
    Leave,
    /// The [`Membership::next_timer`](super::Membership::next_timer) has expired. Early and repeated timers are
    /// harmless.
    Timer,
}

/// Output of a membership, for the driver to execute in order.
#[derive(Clone, Debug)]
pub enum MembershipCommand {
    /// Submit a request to the coordination service, and report its answer under this id.
    Submit {
        /// Its id.
        request: RequestId,
        /// The request to submit.
        what: CoordinationRequest,
    },
    /// Watch everything under [`CLUSTER_PREFIX`](super::CLUSTER_PREFIX), replacing any earlier watch.
    Watch {
        /// Its id.
        watch: WatchId,
        /// The first revision to deliver.
        from: Revision,
    },
    /// This node is a member, and this is its id.
    Joined {
        /// The id.
        node: NodeId,
    },
    /// The records have changed.
    Roster(Roster),
    /// There is a new view, for [`Event::View`](crate::Event::View).
    View(View),
    /// The lease is valid until this time on the node's clock, for [`Event::MayActUntil`](crate::Event::MayActUntil)
    /// and for the code that starts turns and saves.
    MayActUntil(Time),
    /// The lease may have expired: turns should stop until the next [`MembershipCommand::MayActUntil`].
    Fence,
    /// This node is not or no longer a member. No command follows.
    Ended(MembershipEnd),
}

/// Reason why a membership has ended or failed to start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipEnd {
    /// A member has this name, or its lease has not expired yet. Nothing was changed; retry later, or choose another name.
    #[error("there is already a member called `{0}`")]
    NameTaken(String),
    /// Coordination was unreachable or rejected the request. This node is not a member, or stops being one when its lease
    /// expires.
    #[error("coordination failed: {0}")]
    Coordination(CoordinationError),
    /// The lease is gone: other members take over from this node. It must end, and needs a new id to join again.
    #[error("this node is no longer a member of its cluster")]
    Evicted,
    /// This node has left.
    #[error("this node has left its cluster")]
    Left,
}

//! What happens to a membership, and what it wants done.

use elastin_types::{NodeId, Time};

use super::Roster;
use crate::View;
use crate::store::{CoordinationError, CoordinationReply, CoordinationRequest, Revision, WatchBatch};

/// Names a request, so that its answer can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Names a watch. What an earlier one still brings is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// Something that happened to a membership.
#[derive(Clone, Debug)]
pub enum MembershipEvent {
    /// A request has ended, however late.
    Answered {
        /// Which.
        request: RequestId,
        /// How.
        result: Result<CoordinationReply, CoordinationError>,
    },
    /// A watch has seen changes, or has ended.
    Watched {
        /// Which.
        watch: WatchId,
        /// What it saw; an error is the last thing.
        batch: Result<WatchBatch, CoordinationError>,
    },
    /// A member shall be emptied (or no longer).
    Drain {
        /// The member.
        node: NodeId,
        /// Whether it shall.
        draining: bool,
    },
    /// A member does not answer its peers: its lease is ended, and when it is held long enough it is dropped. If it lives
    /// it hears of it, ends, and may join anew.
    Suspect {
        /// The member.
        node: NodeId,
    },
    /// A member's process is certainly gone: it is dropped without a hold.
    Stopped {
        /// The member.
        node: NodeId,
    },
    /// This node leaves. It must have ended its turns, and does nothing more.
    Leave,
    /// The time that [`Membership::next_timer`](super::Membership::next_timer) named has come. Too early or too often does
    /// no harm.
    Timer,
}

/// Something for the driver of a membership to do, in order.
#[derive(Clone, Debug)]
pub enum MembershipCommand {
    /// Hand a request to the coordination service, and report its answer under this name.
    Submit {
        /// Names it.
        request: RequestId,
        /// What is asked.
        what: CoordinationRequest,
    },
    /// Watch everything under [`CLUSTER_PREFIX`](super::CLUSTER_PREFIX), instead of any watch before.
    Watch {
        /// Names it.
        watch: WatchId,
        /// The first revision that is wanted.
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
    /// The lease is good until this time on the node's clock, for [`Event::MayActUntil`](crate::Event::MayActUntil) and for
    /// whoever starts turns and saves.
    MayActUntil(Time),
    /// The lease may have run out: turns should stop. [`MembershipCommand::MayActUntil`] says when they may go on.
    Fence,
    /// This node is no member (any more). Nothing follows.
    Ended(MembershipEnd),
}

/// Why a membership has ended, or never began.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipEnd {
    /// There is a member of this name, or its lease has not run out yet. Nothing was changed; try again later, or take
    /// another name.
    #[error("there is already a member called `{0}`")]
    NameTaken(String),
    /// Coordination could not be reached in time, or refused. This node is no member, or will cease to be one when its
    /// lease runs out.
    #[error("coordination failed: {0}")]
    Coordination(CoordinationError),
    /// The lease is gone: the others take over from this node. It must end; a new life needs a new id.
    #[error("this node is no longer a member of its cluster")]
    Evicted,
    /// This node has left.
    #[error("this node has left its cluster")]
    Left,
}

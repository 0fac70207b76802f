//! Cluster membership over the coordination service: join, drain, suspicion, leave, failure, and the agreed views.
//!
//! ```text
//!  cluster/members/NAME   a member's record, bound to its lease; its create revision is the node's id and its epoch
//!  cluster/view           members and slot owners; replaced by compare-and-swap
//! ```
//!
//! Every member watches both. The member with the lowest id among servers and supervisors is the publisher: it builds
//! the next view from the records and replaces the current one by compare-and-swap. The records and their leases
//! determine the publisher, so there is no election. Two concurrent publishers are harmless: the store rejects a view
//! that was built from an older one.
//!
//! A member whose record has gone may still act, if its lease was revoked early. Views name it, and it keeps its slots,
//! until its hold has expired. A member that has certainly stopped is marked in its record, and needs no hold.
//!
//! [`Membership`] is a state machine like [`Node`](crate::Node): a driver executes its [`MembershipCommand`]s and
//! reports the results. While coordination is unavailable nothing changes until the lease may have expired; then the
//! node is fenced. Once coordination is available again the node resumes, or ends if its lease is gone.

mod machine;
mod message;
mod pending_writes;
mod published;
mod record;
mod slot_hold;

pub use machine::Membership;
pub use message::{MembershipCommand, MembershipEnd, MembershipEvent, RequestId, WatchId};
pub use record::{CLUSTER_PREFIX, MemberRecord, Role, Roster};

#[cfg(test)]
mod tests;

//! A node's membership over the coordination service: join, drain, suspicion, leave, death, and the views that all agree on.
//!
//! ```text
//!  cluster/members/NAME   who is there, bound to its lease; the revision that created it is the node's id, and its epoch
//!  cluster/view           who is a member and who owns which slot; replaced by compare-and-swap
//! ```
//!
//! Every member follows both. The one with the lowest id among servers and supervisors publishes: it puts a view together
//! from the records and replaces the one that is there, if nobody has since. Which member that is follows from the records
//! and their leases, so there is no election, and two who take themselves for it do no harm: a view that was put together
//! from an older one is refused.
//!
//! A member whose record has gone may still act, if its lease was ended early: views name it, and its slots are its own,
//! until its hold is over. A member that has certainly stopped says so in its record, and is held by nobody.
//!
//! [`Membership`] is a state machine like [`Node`](crate::Node): a driver carries out its [`MembershipCommand`]s and tells
//! it what came of them. While coordination is away nothing changes until the lease may have run out; then the node is
//! fenced, and when coordination is back it goes on, or ends if its lease has gone.

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

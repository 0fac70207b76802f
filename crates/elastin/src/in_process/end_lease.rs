//! Revokes leases of members, for tests.

use elastin_protocol::membership::CLUSTER_PREFIX;
use elastin_protocol::store::{CoordinationReply, CoordinationRequest, RANGE_LIMIT_MAX};
use elastin_stores::CoordinationExt;

use super::InProcess;

/// Revokes the lease of a member, as an operator of the coordination store may.
pub(super) async fn end_lease(cluster: &InProcess, member: &str) {
    let coordination = &cluster.servers.stores.coordination;
    let all = CoordinationRequest::Range {
        prefix: CLUSTER_PREFIX.into(),
        after: None,
        limit: RANGE_LIMIT_MAX,
    };
    let Ok(CoordinationReply::Entries { entries, .. }) = coordination.call(all).await else {
        panic!("a range is answered by Entries");
    };
    let mut records = entries.iter().filter(|entry| entry.key.ends_with(member));
    let lease = records.find_map(|record| record.lease);
    let lease = lease.expect("a member's record is bound to its lease");
    let revoked = coordination.call(CoordinationRequest::Revoke { lease }).await;
    revoked.expect("the lease exists");
}

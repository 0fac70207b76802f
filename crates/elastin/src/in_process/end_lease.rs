//! Members whose leases are ended, for tests.

use elastin_protocol::membership::CLUSTER_PREFIX;
use elastin_protocol::store::{CoordinationReply, CoordinationRequest, RANGE_LIMIT_MAX};
use elastin_stores::CoordinationExt;

use super::InProcess;

/// Ends the lease of a member, as somebody may who operates what coordinates the cluster.
pub(super) async fn end_lease(cluster: &InProcess, member: &str) {
    let coordination = &cluster.servers.stores.coordination;
    let all = CoordinationRequest::Range {
        prefix: CLUSTER_PREFIX.into(),
        after: None,
        limit: RANGE_LIMIT_MAX,
    };
    let Ok(CoordinationReply::Entries { entries, .. }) = coordination.call(all).await else {
        panic!("coordination is in this process, and answers");
    };
    let mut records = entries.iter().filter(|entry| entry.key.ends_with(member));
    let lease = records.find_map(|record| record.lease);
    let lease = lease.expect("a member's record is bound to its lease");
    let revoked = coordination.call(CoordinationRequest::Revoke { lease }).await;
    revoked.expect("there is such a lease");
}

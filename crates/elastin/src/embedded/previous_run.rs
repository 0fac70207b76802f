//! Cleanup after a previous run of an embedded cluster.

use std::collections::BTreeSet;

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, LeaseId, RANGE_LIMIT_MAX,
};
use elastin_stores::CoordinationExt;

/// Revokes all leases of a previous run, so that no member waits for them to expire.
///
/// This is safe, because only one process can have the files open. The members of a previous run reached coordination
/// and state through a supervisor that is gone, so nothing that they still do can have an effect.
pub(super) async fn end_leases(coordination: &dyn Coordination) -> Result<(), CoordinationError> {
    for lease in leases(coordination).await? {
        coordination.call(CoordinationRequest::Revoke { lease }).await?;
    }
    Ok(())
}

/// The leases that keys are bound to.
async fn leases(coordination: &dyn Coordination) -> Result<BTreeSet<LeaseId>, CoordinationError> {
    let mut leases = BTreeSet::new();
    let mut after = None;
    loop {
        let range = CoordinationRequest::Range {
            prefix: String::new(),
            after,
            limit: RANGE_LIMIT_MAX,
        };
        let (entries, more) = match coordination.call(range).await? {
            CoordinationReply::Entries { entries, more, .. } => (entries, more),
            other => unreachable!("a range is answered by Entries, not {other:?}"),
        };
        after = entries.last().map(|entry| entry.key.clone());
        leases.extend(entries.into_iter().filter_map(|entry| entry.lease));
        if !more || after.is_none() {
            return Ok(leases);
        }
    }
}

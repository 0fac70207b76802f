//! What an earlier life of an embedded cluster has left in its files.

use std::collections::BTreeSet;

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, LeaseId, RANGE_LIMIT_MAX,
};
use elastin_stores::CoordinationExt;

/// Ends all leases of an earlier life, so that nobody waits for them to run out.
///
/// That is safe: whoever has the files open is the only one. The members of an earlier life reached coordination and state
/// through a supervisor that is gone, so nothing that they still do can have an effect.
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

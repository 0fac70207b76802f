//! The member records in coordination, for processes that have not joined.

use elastin_cluster::MemberRecord;
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, RANGE_LIMIT_MAX,
};
use elastin_stores::call_with_retries;

/// All member records; `None` for one that can't be decoded.
pub(crate) async fn members(coordination: &dyn Coordination) -> Result<Vec<Option<MemberRecord>>, CoordinationError> {
    let mut members = Vec::new();
    let mut after = None;
    loop {
        let range = CoordinationRequest::Range {
            prefix: MemberRecord::key(""),
            after: after.take(),
            limit: RANGE_LIMIT_MAX,
        };
        let (entries, more) = match call_with_retries(coordination, range).await? {
            CoordinationReply::Entries { entries, more, .. } => (entries, more),
            other => unreachable!("a range is answered by Entries, not {other:?}"),
        };
        members.extend(entries.iter().map(|entry| serde_json::from_slice(&entry.value).ok()));
        match entries.into_iter().next_back() {
            Some(last) if more => after = Some(last.key),
            _ => return Ok(members),
        }
    }
}

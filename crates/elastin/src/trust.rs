//! The cluster's trust anchor, kept in coordination: the authority or secret that its members authenticate each other
//! with.
//!
//! Every process that can reach coordination can join. A server with a certificate of another authority would be a
//! member that no other member talks to, and its directory slots would be unreachable. So members compare the anchor
//! before they join.

use std::sync::Arc;

use elastin_cluster::{MemberRecord, Role, Security};
use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Entry, KeyState,
};
use elastin_stores::{CoordinationExt, call_with_retries};

use crate::members::members;

const KEY: &str = "known-by";

/// The most attempts to set the anchor. Each failure means that another server was faster; once it has joined, the
/// anchor is fixed.
const ATTEMPTS_MAX: u32 = 8;

/// Makes sure that a server has the trust anchor of the current servers. Without any server its own anchor replaces the
/// old one: an operator may change the authority of a stopped cluster.
pub(crate) async fn agree(coordination: &Arc<dyn Coordination>, security: &Security) -> anyhow::Result<()> {
    let ours = security.known_by();
    for _ in 0..ATTEMPTS_MAX {
        let first = Commit::put(KEY, ours.clone()).when(KEY, KeyState::Absent);
        let theirs = match call_with_retries(&**coordination, first).await {
            Ok(_) => return Ok(()),
            Err(CoordinationError::ConditionFailed { current, .. }) => current,
            Err(error) => return Err(error.into()),
        };
        let Some(theirs) = theirs else { continue };
        if theirs.value == ours.as_bytes() {
            return Ok(());
        }
        anyhow::ensure!(!has_servers(coordination).await?, different(&ours, &theirs));
        let replace = Commit::put(KEY, ours.clone()).when(KEY, KeyState::ModifiedAt(theirs.modified));
        match coordination.call(replace).await {
            // The next iteration checks the outcome in either case.
            Ok(_) | Err(CoordinationError::ConditionFailed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("servers with different credentials are starting at the same time; this one has {ours}")
}

/// Makes sure that a client has the trust anchor of the servers.
pub(crate) async fn check(coordination: &Arc<dyn Coordination>, security: &Security) -> anyhow::Result<()> {
    let get = CoordinationRequest::Get { key: KEY.into() };
    let theirs = match call_with_retries(&**coordination, get).await? {
        CoordinationReply::Got { entry, .. } => entry,
        other => unreachable!("a get is answered by Got, not {other:?}"),
    };
    let ours = security.known_by();
    match theirs {
        Some(theirs) if theirs.value != ours.as_bytes() => anyhow::bail!(different(&ours, &theirs)),
        _ => Ok(()),
    }
}

fn different(ours: &str, theirs: &Entry) -> String {
    let theirs = String::from_utf8_lossy(&theirs.value);
    format!("the servers of this cluster would reject this process: they authenticate with {theirs}, but it has {ours}")
}

/// Whether the cluster has a server. An unreadable record counts as one.
async fn has_servers(coordination: &Arc<dyn Coordination>) -> Result<bool, CoordinationError> {
    let is_server = |record: &MemberRecord| record.role == Role::Server && !record.stopped;
    let members = members(&**coordination).await?;
    Ok(members.iter().any(|member| member.as_ref().is_none_or(is_server)))
}

#[cfg(test)]
mod tests {
    use elastin_stores::memory::MemoryCoordination;
    use elastin_stores::secret::Secret;

    use super::*;

    async fn put(coordination: &Arc<dyn Coordination>, record: &MemberRecord) {
        let value = serde_json::to_vec(record).unwrap();
        let written = coordination.call(Commit::put(MemberRecord::key(&record.name), value));
        written.await.unwrap();
    }

    #[tokio::test]
    async fn the_first_server_sets_the_trust_anchor() {
        let coordination: Arc<dyn Coordination> = Arc::new(MemoryCoordination::start());
        let (one, other) = (Secret::generate(), Secret::generate());
        let (one, other) = (Security::Secret(one), Security::Secret(other));
        check(&coordination, &other).await.expect("there is no anchor yet");
        for _ in 0..2 {
            agree(&coordination, &one)
                .await
                .expect("the anchor is absent or the same");
        }
        check(&coordination, &one).await.expect("the anchor is the same");
        let mut server = MemberRecord::new("a", Role::Server, None);
        put(&coordination, &server).await;
        for security in [&other, &Security::Trusting] {
            let refused = agree(&coordination, security).await.unwrap_err().to_string();
            let (theirs, ours) = (one.known_by(), security.known_by());
            assert!(
                refused.contains(&theirs) && refused.ends_with(&format!("it has {ours}")),
                "{refused}"
            );
            assert_eq!(check(&coordination, security).await.unwrap_err().to_string(), refused);
        }
        // Clients and stopped servers don't count.
        server.stopped = true;
        put(&coordination, &server).await;
        put(&coordination, &MemberRecord::new("b", Role::Client, None)).await;
        agree(&coordination, &other).await.expect("there is no server");
        check(&coordination, &one).await.expect_err("the anchor was replaced");
    }
}

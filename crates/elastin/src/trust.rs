//! By what the members of a cluster know each other, kept in coordination.
//!
//! Who can reach coordination can join. A server that came with a certificate of another authority would be there and be talked
//! to by nobody, and what it owns of the directory could not be asked for. So it compares before it joins.

use std::sync::Arc;

use elastin_cluster::{MemberRecord, Role, Security};
use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Entry, KeyState,
};
use elastin_stores::{CoordinationExt, call_with_retries};

use crate::members::members;

const KEY: &str = "known-by";

/// How often another server may be quicker to say it: once it has joined, nothing is left to say.
const TRIES_MAX: u32 = 8;

/// Makes sure that a server is known by what the servers are that are there. If there are none, the others will be known by
/// what this one is: an operator may make a new authority while nobody is there.
pub(crate) async fn agree(coordination: &Arc<dyn Coordination>, security: &Security) -> anyhow::Result<()> {
    let ours = security.known_by();
    for _ in 0..TRIES_MAX {
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
        let anew = Commit::put(KEY, ours.clone()).when(KEY, KeyState::ModifiedAt(theirs.modified));
        match coordination.call(anew).await {
            // Looked at again, in either case.
            Ok(_) | Err(CoordinationError::ConditionFailed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("servers that are known by different things start at the same time: this one has {ours}")
}

/// Makes sure that somebody who only calls is known by what the servers are.
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
    format!(
        "the servers of this cluster know each other by {theirs}, and would not talk to this process: it has {ours}"
    )
}

/// Whether any server is there. A record that can't be read may be one's.
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
    async fn the_first_server_says_what_all_are_known_by_while_one_is_there() {
        let coordination: Arc<dyn Coordination> = Arc::new(MemoryCoordination::start());
        let (one, other) = (Secret::generate(), Secret::generate());
        let (one, other) = (Security::Secret(one), Security::Secret(other));
        check(&coordination, &other).await.expect("nobody is there");
        for _ in 0..2 {
            agree(&coordination, &one)
                .await
                .expect("it is the first, and a second one like it");
        }
        check(&coordination, &one).await.expect("it is known");
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
        // Those who only call don't count, nor does a server that has stopped.
        server.stopped = true;
        put(&coordination, &server).await;
        put(&coordination, &MemberRecord::new("b", Role::Client, None)).await;
        agree(&coordination, &other).await.expect("no server is there");
        check(&coordination, &one).await.expect_err("now it is the other");
    }
}

//! Checks, before a process joins, that it shares a wire version with every server of the cluster.
//!
//! A server without a common version would own directory slots that no other member could query. Two servers that start
//! at the same time may miss each other here; their handshake fails then, and both log it.

use elastin_cluster::{Role, common_version};
use elastin_protocol::store::Coordination;

use crate::members::members;

/// Makes sure that every server speaks one of these versions, given as oldest and newest.
pub(crate) async fn check(coordination: &dyn Coordination, ours: (u16, u16)) -> anyhow::Result<()> {
    let failed = |error| anyhow::anyhow!("coordination failed: {error}");
    // Unreadable records are skipped: they don't tell the version.
    let members = members(coordination).await.map_err(failed)?;
    let servers = members.into_iter().flatten();
    let servers = servers.filter(|record| record.role != Role::Client && !record.stopped);
    let incompatible: Vec<(String, (u16, u16))> = servers
        .filter_map(|record| Some((record.name, record.wire_versions?)))
        .filter(|(_, theirs)| common_version(ours, *theirs).is_none())
        .collect();
    match incompatible.first() {
        None => Ok(()),
        Some((name, theirs)) => anyhow::bail!(
            "this build speaks {}, which {} of the cluster's servers do not support, such as `{name}`, which speaks {}: upgrade by \
             way of a build that speaks both",
            describe(ours),
            incompatible.len(),
            describe(*theirs),
        ),
    }
}

fn describe((oldest, newest): (u16, u16)) -> String {
    match oldest == newest {
        true => format!("wire version {oldest}"),
        false => format!("wire versions {oldest} to {newest}"),
    }
}

#[cfg(test)]
mod tests {
    use elastin_cluster::MemberRecord;
    use elastin_protocol::store::Commit;
    use elastin_stores::CoordinationExt;
    use elastin_stores::memory::MemoryCoordination;

    use super::*;

    async fn put(coordination: &dyn Coordination, name: &str, change: impl FnOnce(&mut MemberRecord)) {
        let mut record = MemberRecord::new(name, Role::Server, None);
        change(&mut record);
        let value = serde_json::to_vec(&record).unwrap();
        let written = coordination.call(Commit::put(MemberRecord::key(name), value));
        written.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_without_a_common_version_is_an_error() {
        let coordination = MemoryCoordination::start();
        check(&coordination, (9, 9)).await.expect("there are no servers");
        put(&coordination, "a", |record| record.wire_versions = Some((3, 4))).await;
        put(&coordination, "b", |record| record.wire_versions = Some((4, 6))).await;
        // Ignored: an old build that does not record its versions, a client, and a stopped server.
        put(&coordination, "c", |_| {}).await;
        put(&coordination, "d", |record| {
            record.wire_versions = Some((1, 1));
            record.role = Role::Client;
        })
        .await;
        put(&coordination, "e", |record| {
            record.wire_versions = Some((1, 1));
            record.stopped = true;
        })
        .await;
        for overlapping in [(4, 4), (4, 9), (1, 4)] {
            check(&coordination, overlapping).await.unwrap();
        }
        let refused = check(&coordination, (5, 5)).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("this build speaks wire version 5, which 1 of the cluster's servers do not support")
                && refused.contains("`a`, which speaks wire versions 3 to 4"),
            "{refused}"
        );
        check(&coordination, (7, 8)).await.expect_err("no server speaks it");
    }
}

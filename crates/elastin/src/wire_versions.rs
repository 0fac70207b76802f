//! Whether a process that is about to join a cluster could talk to the servers that are there.
//!
//! A member whose versions of the wire nobody else speaks would own a part of the directory that nobody could ask it for. So it
//! compares before it joins. Two that start at the same moment may miss each other: their handshakes find out, and both log it.

use elastin_cluster::{Role, common_version};
use elastin_protocol::store::Coordination;

use crate::members::members;

/// Makes sure that each server which is there speaks one of these versions, from the oldest to the newest.
pub(crate) async fn check(coordination: &dyn Coordination, ours: (u16, u16)) -> anyhow::Result<()> {
    let failed = |error| anyhow::anyhow!("coordination failed: {error}");
    // A record that can't be read says nothing about it.
    let members = members(coordination).await.map_err(failed)?;
    let servers = members.into_iter().flatten();
    let servers = servers.filter(|record| record.role != Role::Client && !record.stopped);
    let strangers: Vec<(String, (u16, u16))> = servers
        .filter_map(|record| Some((record.name, record.wire_versions?)))
        .filter(|(_, theirs)| common_version(ours, *theirs).is_none())
        .collect();
    match strangers.first() {
        None => Ok(()),
        Some((name, theirs)) => anyhow::bail!(
            "this build speaks {}, and {} of the servers that are there can't talk to it, such as `{name}`, which speaks {}: \
             upgrade by way of a build that speaks both",
            words(ours),
            strangers.len(),
            words(*theirs),
        ),
    }
}

fn words((oldest, newest): (u16, u16)) -> String {
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
    async fn a_process_that_no_server_could_talk_to_does_not_join() {
        let coordination = MemoryCoordination::start();
        check(&coordination, (9, 9)).await.expect("nobody is there");
        put(&coordination, "a", |record| record.wire_versions = Some((3, 4))).await;
        put(&coordination, "b", |record| record.wire_versions = Some((4, 6))).await;
        // One of a build that did not say it, somebody who only calls, and one that has gone.
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
            refused.starts_with("this build speaks wire version 5, and 1 of the servers that are there")
                && refused.contains("`a`, which speaks wire versions 3 to 4"),
            "{refused}"
        );
        check(&coordination, (7, 8)).await.expect_err("neither speaks it");
    }
}

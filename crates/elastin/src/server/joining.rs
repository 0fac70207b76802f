//! Joining a cluster as a server.

use std::time::Duration;

use elastin_cluster::{MembershipUpdate, Roster};

use crate::App;
use crate::member::{Member, MemberOptions};

/// The most attempts to join. A server may lose its lease on an overloaded machine; after so many losses, something
/// else is wrong.
pub(super) const JOINS_MAX: u32 = 5;

/// The first backoff, which doubles with each attempt, so that a server yields to the load that costs it its lease.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Joins and waits for the first roster. A server that loses its lease before that has hosted no actors, so it rejoins
/// as a new member instead of ending.
pub(super) async fn join(app: &App, options: &MemberOptions) -> anyhow::Result<(Member, Roster)> {
    let mut backoff = BACKOFF_MIN;
    for _ in 0..JOINS_MAX {
        let mut member = Member::join(app, options.clone()).await?;
        if let Some(MembershipUpdate::Roster(roster)) = member.next_update().await {
            return Ok((member, roster));
        }
        tracing::warn!("this server lost its lease while joining: joining again");
        member.driver.close();
        member.runtime.shutdown(Duration::ZERO).await;
        tokio::time::sleep(backoff).await;
        backoff *= 2;
    }
    anyhow::bail!("this server lost its lease {JOINS_MAX} times while joining: is the machine overloaded?")
}

//! How a server becomes one.

use std::time::Duration;

use elastin_cluster::{MembershipUpdate, Roster};

use crate::App;
use crate::member::{Member, MemberOptions};

/// How often a server joins that loses its lease before it takes part, as it may on a machine that is very busy. If it happens
/// more often, something is wrong that trying does not mend.
pub(super) const JOINS_MAX: u32 = 5;

/// How long it waits before it joins again for the first time; each time twice as long, so that it gives way to what keeps the
/// machine busy.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Joins, and waits until it knows who is there. Whoever loses its lease before that has hosted nobody, so it joins again as
/// a new member instead of ending.
pub(super) async fn take_part(app: &App, options: &MemberOptions) -> anyhow::Result<(Member, Roster)> {
    let mut pause = PAUSE_MIN;
    for _ in 0..JOINS_MAX {
        let mut member = Member::join(app, options.clone()).await?;
        if let Some(MembershipUpdate::Roster(roster)) = member.hear().await {
            return Ok((member, roster));
        }
        tracing::warn!("this server lost its lease before it could take part: it joins again");
        member.peer.close();
        member.runtime.shutdown(Duration::ZERO).await;
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    anyhow::bail!("this server lost its lease {JOINS_MAX} times before it could take part in its cluster")
}

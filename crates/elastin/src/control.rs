//! What the drivers of local and global elasticity managers share.

use std::time::Duration;

use elastin_cluster::{Role, Roster};
use elastin_control::Member;
use elastin_types::ServerState;

/// The members as elasticity managers see them.
pub(crate) fn members_of(roster: &Roster) -> Vec<Member> {
    roster
        .members
        .iter()
        .filter(|(_, record)| record.role != Role::Client)
        .map(|(node, record)| Member {
            node: *node,
            hosts: record.role == Role::Server,
            state: if record.draining {
                ServerState::Draining
            } else {
                ServerState::Active
            },
            // The embedded cluster has one global manager, at its supervisor.
            global: record.role == Role::Supervisor,
        })
        .collect()
}

/// Sleeps until a manager's timer is due; for ever if it has none.
pub(crate) async fn sleep_until_due(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left.max(TIMER_MIN)).await,
        None => std::future::pending().await,
    }
}

/// The shortest sleep, so that a timer in the past does not keep a core busy.
const TIMER_MIN: Duration = Duration::from_millis(1);

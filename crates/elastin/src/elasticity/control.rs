//! Helpers shared by the drivers of the local and global elasticity managers.

use std::time::Duration;

use elastin_clock::Sleeper;
use elastin_cluster::{Class, MemberRecord, NodeDriver, Role, Roster};
use elastin_control::{ControlMessage, Member, NewActor};
use elastin_types::{ActorId, Caller, NodeId, ServerState, Time};

use crate::wire::{self, ControlFrame};

/// The members as elasticity managers see them.
pub(crate) fn members_of(roster: &Roster) -> Vec<Member> {
    let global = global_manager(roster);
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
            global: Some(*node) == global,
        })
        .collect()
}

/// The node that runs the global manager: the supervisor, or else the oldest server that is not draining.
///
/// Equal rosters give the same node, and a manager may be lost at any time, so this needs no election protocol.
pub(crate) fn global_manager(roster: &Roster) -> Option<NodeId> {
    let oldest = |fits: &dyn Fn(&MemberRecord) -> bool| {
        let mut members = roster.members.iter();
        members.find(|(_, record)| fits(record)).map(|(node, _)| *node)
    };
    roster
        .supervisor()
        .or_else(|| oldest(&|record| record.role == Role::Server && !record.draining))
        .or_else(|| oldest(&|record| record.role == Role::Server))
}

/// A new actor as elasticity managers see it.
pub(crate) fn new_actor(roster: &Roster, actor: ActorId, caller: Caller, caller_node: NodeId) -> NewActor {
    let caller_hosts = roster
        .members
        .get(&caller_node)
        .is_some_and(|record| record.role == Role::Server);
    NewActor {
        actor,
        caller: match caller {
            Caller::Actor(caller) => Some(caller),
            Caller::Client(_) => None,
        },
        caller_node: caller_hosts.then_some(caller_node),
    }
}

/// Sends a control frame to another node.
pub(crate) fn send_control(driver: &NodeDriver, to: NodeId, frame: &ControlFrame) {
    if let Err(error) = driver.send(to, Class::Control, &wire::encode(frame)) {
        // Every request between managers has a timeout, so a lost frame costs a period at most.
        tracing::warn!(%to, %error, "dropped a control frame");
    }
}

/// Relays a message to the local manager of an actor's host, if this node knows the host.
pub(crate) fn relay_to_host(driver: &NodeDriver, from: NodeId, actor: &ActorId, message: ControlMessage) {
    if let Some(host) = driver.host_of(actor) {
        send_control(driver, host, &ControlFrame::Relayed { from, message });
    }
}

/// Sleeps until a manager's timer is due, or for ever without one.
pub(crate) async fn sleep_until_due(sleeper: &Sleeper, due: Option<Time>) {
    let earliest = sleeper.clock().now() + TIMER_MIN;
    sleeper.sleep_until(due.map(|due| due.max(earliest))).await;
}

/// The shortest sleep, so that an overdue timer does not spin.
const TIMER_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(records: &[(u64, Role, bool)]) -> Roster {
        let record = |(id, role, draining): &(u64, Role, bool)| {
            let mut record = MemberRecord::new(format!("m{id}"), *role, None);
            record.draining = *draining;
            (NodeId(*id), record)
        };
        Roster {
            members: records.iter().map(record).collect(),
        }
    }

    #[test]
    fn the_global_manager_is_the_supervisor_or_the_oldest_server() {
        let check = |records: &[(u64, Role, bool)], expected: Option<u64>| {
            assert_eq!(global_manager(&roster(records)), expected.map(NodeId), "{records:?}");
        };
        check(&[(1, Role::Client, false)], None);
        check(&[(1, Role::Server, false), (7, Role::Supervisor, false)], Some(7));
        check(
            &[
                (1, Role::Client, false),
                (3, Role::Server, false),
                (4, Role::Server, false),
            ],
            Some(3),
        );
        check(&[(3, Role::Server, true), (4, Role::Server, false)], Some(4));
        check(&[(3, Role::Server, true), (4, Role::Server, true)], Some(3));
    }
}
